/* Phases by gpushim's own functions, which need not be there. */
#include "program.h"
#include "../../include/gpushim.h"
#pragma weak gpushim_range_push
#pragma weak gpushim_range_pop
#pragma weak gpushim_mark

static void push(const char *name) {
    if (gpushim_range_push) gpushim_range_push(name);
}

static void pop(void) {
    if (gpushim_range_pop) gpushim_range_pop();
}

int main(void) {
    pop();
    push("run");
    start();
    for (int i = 0; i < 3; i++) {
        push("step");
        OK(cuMemFree_v2(allocate(1000 + (size_t)i)));
        if (gpushim_mark) gpushim_mark("done \"it\"");
        pop();
    }
    push(NULL);
    allocate(2000);
    pop();
    pop();
    pop();
    allocate(3000);
    printf("# there %d\n", gpushim_mark != NULL);
    return 0;
}
