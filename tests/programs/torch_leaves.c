/* Threads that end inside PyTorch's functions: the stack is unwound through their callers, as by an exception.
   Argument: the library that announces. */
#include "program.h"

static void (*leave)(int);

static void cleaned(void *which) { printf("unwound from %d\n", *(int *)which); }

static void *thread(void *which) {
    pthread_cleanup_push(cleaned, which);
    leave(*(int *)which);
    pthread_cleanup_pop(0);
    return NULL;
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    setvbuf(stdout, NULL, _IONBF, 0);
    void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
    TRUE(library != NULL);
    *(void **)&leave = dlsym(library, "leave");
    for (int which = 0; which < 4; which++) {
        pthread_t other;
        void *result = NULL;
        TRUE(pthread_create(&other, NULL, thread, &which) == 0);
        TRUE(pthread_join(other, &result) == 0);
        printf("left with %ld\n", (long)result);
    }
    return 0;
}
