/* Allocates below code that is in no file and that /tmp/perf-PID.map names. Argument: what lies at that path. */
#include "program.h"
#include <sys/mman.h>
#include <sys/stat.h>

static CUdeviceptr block;

static void allocate_odd(void) { OK(cuMemAlloc_v2(&block, 1000001)); }

/* What CPython's trampolines for perf are. */
#ifdef __aarch64__
/* stp x29,x30,[sp,#-16]!; mov x29,sp; blr x3; ldp x29,x30,[sp],#16; ret */
static const unsigned CODE[] = {0xa9bf7bfd, 0x910003fd, 0xd63f0060, 0xa8c17bfd, 0xd65f03c0};
#else
/* sub rsp,8; call rcx; add rsp,8; ret */
static const unsigned char CODE[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0x48, 0x83, 0xc4, 0x08, 0xc3};
#endif
typedef void Generated(void *, void *, void *, void (*)(void));

int main(int argc, char **argv) {
    char map[64], other[80];
    TRUE(argc == 2);
    void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    TRUE(code != MAP_FAILED);
    memcpy(code, CODE, sizeof CODE);
    __builtin___clear_cache(code, (char *)code + sizeof CODE);
    TRUE(!mprotect(code, 4096, PROT_READ | PROT_EXEC));
    snprintf(map, sizeof map, "/tmp/perf-%d.map", getpid());
    snprintf(other, sizeof other, "%s.other", map);
    int is_link = !strcmp(argv[1], "link");
    if (!strcmp(argv[1], "pipe")) {
        TRUE(!mkfifo(map, 0666));
    } else {
        FILE *file = fopen(is_link ? other : map, "w");
        TRUE(file != NULL);
        fprintf(file, "%lx %zx generated\n", (unsigned long)code, sizeof CODE);
        fclose(file);
        if (is_link) TRUE(!symlink(other, map));
    }
    start();
    ((Generated *)code)(NULL, NULL, NULL, allocate_odd);
    printf("allocated\n");
    return 0;
}
