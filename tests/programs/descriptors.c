/* A program that closes descriptors which it does not know, and opens its own with their numbers: `closed`, `pair`. Children of a
   fork that calls no handlers, which end by exit: `raw` (the system call), `_Fork`. `open`: an importer. */
#include "program.h"
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { OWN = 8, EACH = 5, CHANNEL = 200 };

/* As a daemon does at its start, but for the stand-in's memory. */
static int close_all(void) {
    int count = 0;
    for (int fd = 3; fd < 64; fd++) {
        char path[40], target[200] = {0};
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 && !strstr(target, "memfd:standin")) count += !close(fd);
    }
    return count;
}

static pid_t raw_fork(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static socklen_t address_of(struct sockaddr_un *address, int number) {
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = sprintf(address->sun_path + 1, "program-%d-%d", getpid(), number);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

/* Connections to sockets of the program's that it does not get. */
static int lost_of(const int *own) {
    int lost = 0;
    struct sockaddr_un address;
    for (int i = 0; i < OWN * EACH; i++) {
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        socklen_t length = address_of(&address, i % OWN);
        TRUE(!connect(fd, (struct sockaddr *)&address, length));
        /* Whoever else waits for it has it by then. */
        sleep_ms(10);
        struct pollfd ready = {own[i % OWN], POLLIN, 0};
        if (poll(&ready, 1, 100) == 1) close(accept(own[i % OWN], NULL, NULL));
        else lost++;
        close(fd);
    }
    return lost;
}

static void closed(void) {
    int own[OWN];
    IpcHandle handle;
    struct sockaddr_un address;
    start();
    CUdeviceptr block = allocate(4 * MIB);
    OK(cuIpcGetMemHandle(&handle, block));
    sleep_ms(100);
    printf("# closed %d\n", close_all());
    for (int i = 0; i < OWN; i++) {
        own[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        socklen_t length = address_of(&address, i);
        TRUE(!bind(own[i], (struct sockaddr *)&address, length) && !listen(own[i], EACH));
    }
    /* Threads that wait for a closed descriptor look at its number again. */
    sleep_ms(1200);
    printf("lost: %d of %d\n", lost_of(own), OWN * EACH);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        int type, gone = 0;
        for (int i = 0; i < OWN; i++) {
            socklen_t length = sizeof type;
            gone += getsockopt(own[i], SOL_SOCKET, SO_TYPE, &type, &length) != 0;
        }
        printf("gone in the child: %d of %d\n", gone, OWN);
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    for (int i = 0; i < 2; i++) printf("# handle %d\n", cuIpcGetMemHandle(&handle, block));
    OK(cuMemFree_v2(block));
}

/* The process ends while another one still uses its socket pairs. */
static void pair(void) {
    int channel[2], pairs[4], failed = -1;
    TRUE(!pipe(channel) && dup2(channel[1], CHANNEL) == CHANNEL && !close(channel[1]));
    fflush(stdout);
    if (fork() == 0) {
        signal(SIGPIPE, SIG_IGN);
        start();
        allocate(4 * MIB);
        sleep_ms(100);
        close_all();
        TRUE(!socketpair(AF_UNIX, SOCK_STREAM, 0, pairs) && !socketpair(AF_UNIX, SOCK_STREAM, 0, pairs + 2));
        pid_t parent = getpid();
        if (raw_fork() == 0) {
            for (int i = 0; i < 2000 && getppid() == parent; i++) sleep_ms(5);
            failed = 0;
            for (int i = 0; i < 4; i++) failed += write(pairs[i], "!", 1) != 1;
            TRUE(write(CHANNEL, &failed, sizeof failed) == (ssize_t)sizeof failed);
            _exit(0);
        }
        sleep_ms(1200);
        exit(0);
    }
    TRUE(!close(CHANNEL) && read(channel[0], &failed, sizeof failed) == (ssize_t)sizeof failed);
    printf("writes that failed: %d of 4\n", failed);
}

/* A child without the handlers of fork ends by exit; then a process opens a handle, and the exporter is killed. */
static void raw(const char *self, int is_call) {
    pid_t (*fork_alone)(void) = raw_fork;
    void *found = dlsym(RTLD_DEFAULT, "_Fork");
    if (!is_call && found) *(void **)&fork_alone = found;
    IpcHandle handle;
    char text[2 * 64 + 1];
    start();
    CUdeviceptr block = allocate(4 * MIB);
    OK(cuMemsetD8_v2(block, 0x5a, 4 * MIB));
    OK(cuIpcGetMemHandle(&handle, block));
    for (int i = 0; i < 64; i++) sprintf(text + 2 * i, "%02x", (unsigned char)handle.bytes[i]);
    fflush(stdout);
    pid_t child = fork_alone();
    if (child == 0) exit(7);
    int status = 0;
    TRUE(waitpid(child, &status, 0) == child);
    printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        execl(self, self, "open", text, (char *)NULL);
        _exit(9);
    }
    waitpid(child, NULL, 0);
    kill(getpid(), SIGKILL);
}

static void open_and_read(const char *text) {
    IpcHandle handle;
    CUdeviceptr block = 0;
    unsigned char byte = 0;
    for (int i = 0; i < 64; i++) {
        unsigned value;
        TRUE(sscanf(text + 2 * i, "%2x", &value) == 1);
        handle.bytes[i] = (char)value;
    }
    start();
    CUresult result = cuIpcOpenMemHandle_v2(&block, handle, 1);
    if (!result) {
        OK(cuMemcpyDtoH_v2(&byte, block, 1));
        OK(cuIpcCloseMemHandle(block));
    }
    printf("open: %d, byte %02x\n", result, byte);
}

int main(int argc, char **argv) {
    TRUE(argc >= 2);
    if (!strcmp(argv[1], "closed")) closed();
    else if (!strcmp(argv[1], "pair")) pair();
    else if (!strcmp(argv[1], "raw")) raw(argv[0], 1);
    else if (!strcmp(argv[1], "_Fork")) raw(argv[0], 0);
    else if (argc == 3 && !strcmp(argv[1], "open")) open_and_read(argv[2]);
    else return 4;
    return 0;
}
