/* Runs a program with a limit on the size of the files that it writes. Arguments: bytes, program. */
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>
int main(int argc, char **argv) {
    if (argc < 3) return 125;
    struct rlimit limit = {(rlim_t)atol(argv[1]), (rlim_t)atol(argv[1])};
    if (setrlimit(RLIMIT_FSIZE, &limit)) return 126;
    execv(argv[2], argv + 2);
    return 127;
}
