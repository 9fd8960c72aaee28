/* A process that plays an exporter of memory in pages, and says what cannot be. Arguments: the lie. */
#include "program.h"
#include <signal.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { MEMORY = 2 * MIB, BLOCK = 8192 };

/* A reply with pieces, or a refusal by the driver (`kind` 2, its code in place of the number of pieces that follow). */
struct reply { uint32_t kind, rest; uint64_t memory, offset, at, piece; };
/* What stands in a handle. */
struct token { char magic[8]; uint32_t process, zero; unsigned char name[16], secret[16]; uint64_t block, bytes; };

static struct reply reply = {0, 0, MEMORY, 4096, 0, MEMORY};
static struct token token = {"gpushim\1", 0, 0, {0}, {0}, 1, BLOCK};

static int listening(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = sprintf(address.sun_path + 1, "gpushim-ipc-"), fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    for (int i = 0; i < 16; i++) length += sprintf(address.sun_path + 1 + length, "%02x", token.name[i]);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    TRUE(!bind(fd, (struct sockaddr *)&address, size) && !listen(fd, 5));
    return fd;
}

static void answer(int peer, int memory) {
    char request[64], space[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec bytes = {&reply, reply.kind ? 24 : sizeof reply};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (!reply.kind) {
        message.msg_control = space, message.msg_controllen = sizeof space;
        struct cmsghdr *first = CMSG_FIRSTHDR(&message);
        *first = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(first), &memory, sizeof memory);
    }
    /* Other processes of the user may ask for memory, in packets of 28 bytes: they are hung up on. */
    while (recv(peer, request, sizeof request, 0) == 36 && sendmsg(peer, &message, MSG_NOSIGNAL) > 0) {}
    close(peer);
}

static int mappings(void) {
    int count = 0;
    char line[400];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) count += strstr(line, "memfd:standin") != NULL;
    fclose(maps);
    return count;
}

int main(int argc, char **argv) {
    TRUE(argc == 2);
    const char *lie = argv[1];
    if (!strcmp(lie, "offset")) reply.offset = UINT64_MAX - 4095;
    else if (!strcmp(lie, "block")) token.bytes = UINT64_MAX;
    else if (!strcmp(lie, "nothing")) token.bytes = 0;
    else if (!strcmp(lie, "memory")) reply.memory = UINT64_MAX - 4095;
    else if (!strcmp(lie, "piece")) reply.piece = UINT64_MAX - 4095;
    else if (!strcmp(lie, "empty")) reply.piece = 0, reply.rest = UINT32_MAX;
    else if (!strcmp(lie, "place")) reply.at = UINT64_MAX - MEMORY + 1;
    else if (!strcmp(lie, "again")) reply.rest = 1;
    else if (!strcmp(lie, "success")) reply.kind = 2;
    else TRUE(!strcmp(lie, "none"));
    TRUE(syscall(SYS_getrandom, token.name, sizeof token.name, 0) == sizeof token.name);
    int listener = listening();
    pid_t exporter = fork();
    if (exporter == 0) {
        alarm(60); /* It may outlive who asks. */
        int memory = memfd_create("standin", 0);
        TRUE(!ftruncate(memory, MEMORY));
        for (;;) answer(accept(listener, NULL, NULL), memory);
    }
    close(listener);
    start();
    IpcHandle handle;
    CUdeviceptr untouched = 7, block = untouched;
    TRUE(sizeof handle == sizeof token);
    memcpy(&handle, &token, sizeof handle);
    int before = mappings();
    CUresult result = cuIpcOpenMemHandle_v2(&block, handle, 1);
    printf("open: %d, address %d, mappings %d\n", result, block != untouched, mappings() - before);
    if (!result) OK(cuIpcCloseMemHandle(block));
    kill(exporter, SIGKILL);
    waitpid(exporter, NULL, 0);
    return 0;
}
