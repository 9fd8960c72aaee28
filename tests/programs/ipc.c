/* Memory shared with other processes by cuIpcGetMemHandle: `many`, `killed`, `stale`, `dead`, `orphan`, `raw-orphan`, `user`, `network`, `plain`.
   It is of cuMemAlloc, or mapped by this program if the word `mapped` follows. `unheard` may make no sockets. Importers are forked before CUDA is used, and do what they are told through a pipe. */
#include "program.h"
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

enum { LIVE = 50, ROUNDS = 20, IMPORTERS = 4, PAGE = 2 << 20 };

/* What an importer is told: open this, compare it, close it. */
struct task { IpcHandle handle; size_t bytes, offset; unsigned seed; };
/* What it found. */
struct answer { CUresult open; unsigned wrong, ms; long beyond; };

struct importer { pid_t pid; int to, from; };

static unsigned now_ms(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (unsigned)(time.tv_sec * 1000 + time.tv_nsec / 1000000);
}

/* Open descriptors, without those of the stand-in's memory, which it keeps until the pages go back. */
static int descriptors(void) {
    int count = 0;
    char path[300], target[300];
    DIR *folder = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/self/fd/%s", entry->d_name);
        ssize_t length = readlink(path, target, sizeof target - 1);
        if (length <= 0) continue;
        target[length] = 0;
        count += !strstr(target, "memfd:standin");
    }
    closedir(folder);
    return count;
}

/* Bytes of addresses behind which the stand-in's memory is. */
static long mapped(void) {
    long bytes = 0;
    unsigned long from, to;
    char line[400];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps))
        if (strstr(line, "memfd:standin") && sscanf(line, "%lx-%lx", &from, &to) == 2) bytes += to - from;
    fclose(maps);
    return bytes;
}

/* Bytes of addresses that the process has. */
static long addresses(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    TRUE(fscanf(file, "%ld", &pages) == 1);
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* When none was opened or closed for 200 ms: connections of the exchange end soon after an answer. */
static int settled_descriptors(void) {
    int count = descriptors();
    for (int same = 0; same < 10; same++) {
        sleep_ms(20);
        int now = descriptors();
        if (now != count) same = 0;
        count = now;
    }
    return count;
}

static unsigned char byte_at(size_t at, unsigned seed) { return (unsigned char)(at * 31 + at / 4096 + seed); }

/* Not of malloc: that would take addresses in between. */
static unsigned char host[64 * MIB];

static void fill(CUdeviceptr block, size_t bytes, unsigned seed) {
    for (size_t at = 0; at < bytes; at++) host[at] = byte_at(at, seed);
    OK(cuMemcpyHtoD_v2(block, host, bytes));
}

static unsigned differing(CUdeviceptr block, size_t bytes, unsigned seed) {
    unsigned wrong = 0;
    OK(cuMemcpyDtoH_v2(host, block, bytes));
    for (size_t at = 0; at < bytes; at++) wrong += host[at] != byte_at(at, seed);
    return wrong;
}

static struct answer carry_out(const struct task *task) {
    struct answer answer = {0};
    CUdeviceptr block = 0, again = 0;
    long before = mapped();
    unsigned since = now_ms();
    answer.open = cuIpcOpenMemHandle_v2(&block, task->handle, 1);
    answer.ms = now_ms() - since;
    if (answer.open) return answer;
    long pages = (long)((task->offset + task->bytes + PAGE - 1) / PAGE * PAGE);
    answer.beyond = mapped() - before - pages;
    answer.wrong = differing(block, task->bytes, task->seed);
    OK(cuIpcOpenMemHandle_v2(&again, task->handle, 1));
    TRUE(again == block);
    OK(cuIpcCloseMemHandle(block));
    TRUE(differing(block, 1, task->seed) <= 1);
    OK(cuIpcCloseMemHandle(block));
    TRUE(cuIpcCloseMemHandle(block) == INVALID_VALUE);
    TRUE(mapped() == before);
    return answer;
}

static void import_all(int in, int out) {
    struct task task;
    int first = 0, done = 0;
    long space = 0;
    while (read(in, &task, sizeof task) == (ssize_t)sizeof task) {
        if (!first) start();
        struct answer answer = carry_out(&task);
        /* By then the shim's threads have their stacks and malloc its arenas. */
        if (++done == 100) space = addresses();
        if (!first) first = settled_descriptors();
        if (write(out, &answer, sizeof answer) != (ssize_t)sizeof answer) break;
    }
    if (first) printf("# importer descriptors %d done %d\n", settled_descriptors() - first, done);
    /* In whole pages of the device: what malloc takes is less. */
    if (space) printf("# pages %ld\n", (addresses() - space) / PAGE);
    fflush(stdout);
    _exit(0);
}

static struct importer importer(void) {
    int to[2], from[2];
    TRUE(!pipe2(to, O_CLOEXEC) && !pipe2(from, O_CLOEXEC));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        close(to[1]), close(from[0]);
        import_all(to[0], from[1]);
    }
    close(to[0]), close(from[1]);
    return (struct importer){pid, to[1], from[0]};
}

static void tell(struct importer *one, const struct task *task) {
    TRUE(write(one->to, task, sizeof *task) == (ssize_t)sizeof *task);
}

static struct answer answer_of(struct importer *one) {
    struct answer answer;
    TRUE(read(one->from, &answer, sizeof answer) == (ssize_t)sizeof answer);
    return answer;
}

static void end(struct importer *one) {
    close(one->to);
    waitpid(one->pid, NULL, 0);
    close(one->from);
}

static int is_mapped;

/* A block of cuMemAlloc, or of pieces of one page that this program maps. */
static CUdeviceptr made(size_t bytes) {
    AllocationProp prop = {.type = 1, .location = {1, 0}};
    AccessDesc both = {{1, 0}, 3};
    CUdeviceptr block = 0;
    if (!is_mapped) return allocate(bytes);
    size_t all = (bytes + PAGE - 1) / PAGE * PAGE;
    OK(cuMemAddressReserve(&block, all, 0, 0, 0));
    for (size_t at = 0; at < all; at += PAGE) {
        CUhandle piece = 0;
        OK(cuMemCreate(&piece, PAGE, &prop, 0));
        OK(cuMemMap(block + at, PAGE, 0, piece, 0));
        OK(cuMemRelease(piece));
    }
    OK(cuMemSetAccess(block, all, &both, 1));
    return block;
}

static void unmake(CUdeviceptr block, size_t bytes) {
    size_t all = (bytes + PAGE - 1) / PAGE * PAGE;
    if (!is_mapped) {
        OK(cuMemFree_v2(block));
        return;
    }
    OK(cuMemUnmap(block, all));
    OK(cuMemAddressFree(block, all));
}

static struct task exported(CUdeviceptr block, size_t bytes, unsigned seed) {
    struct task task = {.bytes = bytes, .offset = block % PAGE, .seed = seed};
    fill(block, bytes, seed);
    OK(cuIpcGetMemHandle(&task.handle, block));
    return task;
}

static size_t size_of(unsigned n) {
    static const size_t sizes[] = {1000, 512, 300 << 10, MIB, 2 * MIB, 3 * MIB + 512, 6 * MIB, 100};
    return sizes[n % 8];
}

/* Each handle goes to each importer. */
static void many(void) {
    struct importer all[IMPORTERS];
    CUdeviceptr block[LIVE];
    unsigned wrong = 0, failed = 0;
    long least = 0, most = 0;
    int before = 0;
    for (int i = 0; i < IMPORTERS; i++) all[i] = importer();
    start();
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct task task[LIVE];
        for (unsigned i = 0; i < LIVE; i++) {
            block[i] = made(size_of(i));
            task[i] = exported(block[i], size_of(i), round * LIVE + i);
        }
        for (unsigned i = 0; i < LIVE; i++) {
            for (int j = 0; j < IMPORTERS; j++) tell(&all[j], &task[i]);
            for (int j = 0; j < IMPORTERS; j++) {
                struct answer answer = answer_of(&all[j]);
                wrong += answer.wrong, failed += answer.open != 0;
                if (answer.beyond < least) least = answer.beyond;
                if (answer.beyond > most) most = answer.beyond;
            }
            if (!before) before = settled_descriptors();
        }
        for (unsigned i = 0; i < LIVE; i++) unmake(block[i], size_of(i));
    }
    printf("# handles %d wrong %u failed %u\n# least %ld most %ld\n", LIVE * ROUNDS, wrong, failed, least, most);
    /* The last one first: it has the earlier ones' pipes. */
    for (int i = IMPORTERS; i-- > 0;) end(&all[i]);
    printf("# exporter descriptors %d\n", settled_descriptors() - before + 2 * IMPORTERS);
}

/* Importers are killed while they open and close. */
static void killed(void) {
    enum { ROUND = 40 };
    static struct importer some[ROUND];
    struct importer last = importer();
    for (int i = 0; i < ROUND; i++) some[i] = importer();
    start();
    CUdeviceptr block = made(64 * MIB);
    struct task task = exported(block, 64 * MIB, 1);
    tell(&last, &task);
    struct answer first = answer_of(&last);
    int before = settled_descriptors();
    srand(7);
    for (int i = 0; i < ROUND; i++) {
        for (int n = 0; n < 20; n++) tell(&some[i], &task);
        struct timespec time = {0, rand() % 60 * 1000000L};
        nanosleep(&time, NULL);
        kill(some[i].pid, SIGKILL);
        end(&some[i]);
    }
    sleep_ms(200);
    tell(&last, &task);
    struct answer answer = answer_of(&last);
    printf("# first %d last %d wrong %u\n", first.open, answer.open, answer.wrong);
    printf("# beyond %ld\n", first.beyond);
    printf("# ms %u descriptors %d\n", answer.ms, settled_descriptors() - before + 2 * ROUND);
    unmake(block, 64 * MIB);
    end(&last);
}

/* The handle of a block that was freed, while it is free and when its address is another block's. */
static void stale(void) {
    struct importer one = importer();
    start();
    CUdeviceptr block = made(4 * MIB);
    struct task task = exported(block, 4 * MIB, 1);
    tell(&one, &task);
    int first = answer_of(&one).open;
    unmake(block, 4 * MIB);
    tell(&one, &task);
    int freed = answer_of(&one).open;
    CUdeviceptr next = made(4 * MIB);
    tell(&one, &task);
    int reused = answer_of(&one).open;
    struct task other = exported(next, 4 * MIB, 2);
    tell(&one, &other);
    struct answer answer = answer_of(&one);
    printf("open: %d, freed: %d, reused: %d\n", first, freed, reused);
    printf("another at this address: %d, wrong %u\n", answer.open, answer.wrong);
    printf("# same address %d same handle %d\n", next == block, !memcmp(&task.handle, &other.handle, 64));
    unmake(next, 4 * MIB);
    end(&one);
}

/* A sandbox forbids sockets: memory is served all the same, but not exported. */
static void unheard(void) {
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof *rules, rules};
    start();
    TRUE(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    TRUE(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
    CUdeviceptr block = allocate(4 * MIB);
    for (int i = 0; i < 2; i++) {
        IpcHandle handle;
        printf("handle: %d\n", cuIpcGetMemHandle(&handle, block));
    }
    OK(cuMemFree_v2(block));
}

/* A child whose fork calls no handlers. */
static pid_t raw_fork(void) { return (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); }

static pid_t no_fork(void) { return -1; }

/* The exporter is killed; it may leave a forked child that lives on. */
static void dead(pid_t (*how)(void)) {
    struct task task;
    int channel[2];
    TRUE(!pipe(channel));
    pid_t exporter = fork();
    if (exporter == 0) {
        start();
        task = exported(made(4 * MIB), 4 * MIB, 1);
        pid_t child = how();
        if (child == 0) {
            for (int fd = 0; fd < 3; fd++) close(fd);
            close(channel[1]);
            sleep(20);
            _exit(0);
        }
        TRUE(write(channel[1], &task, sizeof task) == (ssize_t)sizeof task);
        TRUE(write(channel[1], &child, sizeof child) == (ssize_t)sizeof child);
        pause();
    }
    pid_t child;
    TRUE(read(channel[0], &task, sizeof task) == (ssize_t)sizeof task);
    TRUE(read(channel[0], &child, sizeof child) == (ssize_t)sizeof child);
    sleep_ms(100);
    kill(exporter, SIGKILL);
    /* It has ended, and its parent has yet to take note. */
    TRUE(!waitid(P_PID, (id_t)exporter, NULL, WEXITED | WNOWAIT));
    start();
    struct answer answer = carry_out(&task);
    printf("open: %d\n# ms %u\n", answer.open, answer.ms);
    unsigned since = now_ms();
    CUdeviceptr block;
    printf("more than there is: %d\n", cuMemAlloc_v2(&block, (size_t)100 << 30));
    printf("# refused %u\n", now_ms() - since);
    if (child > 0) kill(child, SIGKILL);
}

/* Bytes that the exporter's socket answers to a request with the right secret; 0: it hung up. */
static long asked(const IpcHandle *handle) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char request[36] = {0}, reply[600];
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "gpushim-ipc-");
    for (int i = 16; i < 32; i++)
        length += snprintf(address.sun_path + 1 + length, 3, "%02x", (unsigned char)handle->bytes[i]);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
    if (connect(fd, (struct sockaddr *)&address, size)) return -errno;
    memcpy(request + 12, handle->bytes + 48, 8);
    memcpy(request + 20, handle->bytes + 32, 16);
    if (send(fd, request, sizeof request, MSG_NOSIGNAL) < 0) return 0;
    long got = recv(fd, reply, sizeof reply, 0);
    close(fd);
    return got > 0 ? got : 0;
}

/* A process of another user has the handle. Only root can become one. */
static void user(void) {
    if (geteuid()) {
        printf("# root 0\n");
        return;
    }
    int channel[2];
    TRUE(!pipe(channel));
    fflush(stdout);
    pid_t child = fork();
    struct task task;
    if (child == 0) {
        open_driver();
        TRUE(read(channel[0], &task, sizeof task) == (ssize_t)sizeof task);
        TRUE(!setgid(65534) && !setuid(65534));
        start();
        long got = asked(&task.handle);
        struct answer answer = carry_out(&task);
        printf("# stranger %ld open %d\n", got, answer.open);
        fflush(stdout);
        _exit(0);
    }
    start();
    task = exported(made(4 * MIB), 4 * MIB, 1);
    printf("# root 1 own %ld\n", asked(&task.handle));
    fflush(stdout);
    TRUE(write(channel[1], &task, sizeof task) == (ssize_t)sizeof task);
    waitpid(child, NULL, 0);
}

/* The importer has another network namespace, as another container has: it finds the socket's file. Only root can make
   one. */
static void network(void) {
    struct task task;
    int channel[2];
    TRUE(!pipe(channel));
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        if (unshare(CLONE_NEWNET)) {
            printf("# namespace 0\n");
            fflush(stdout);
            _exit(0);
        }
        TRUE(read(channel[0], &task, sizeof task) == (ssize_t)sizeof task);
        start();
        long got = asked(&task.handle);
        struct answer answer = carry_out(&task);
        printf("# namespace 1 abstract %ld open %d wrong %u\n", got, answer.open, answer.wrong);
        fflush(stdout);
        _exit(0);
    }
    start();
    task = exported(made(4 * MIB), 4 * MIB, 1);
    TRUE(write(channel[1], &task, sizeof task) == (ssize_t)sizeof task);
    waitpid(child, NULL, 0);
}

/* A process without the shim has the handle. */
static void plain(const char *self) {
    start();
    struct task task = exported(made(4 * MIB), 4 * MIB, 1);
    char text[2 * 64 + 1];
    for (int i = 0; i < 64; i++) sprintf(text + 2 * i, "%02x", (unsigned char)task.handle.bytes[i]);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        unsetenv("LD_PRELOAD");
        execl(self, self, "without", text, (char *)NULL);
        _exit(9);
    }
    waitpid(child, NULL, 0);
}

static IpcHandle parsed(const char *text) {
    IpcHandle handle;
    for (int i = 0; i < 64; i++) {
        unsigned byte;
        TRUE(sscanf(text + 2 * i, "%2x", &byte) == 1);
        handle.bytes[i] = (char)byte;
    }
    return handle;
}

static void without(const char *text) {
    struct task task = {.handle = parsed(text)};
    start();
    TRUE(!getenv("LD_PRELOAD"));
    printf("open: %d\n", carry_out(&task).open);
}

/* The first byte of what a handle opens, and another one. */
static void read_two(const char *text, const char *place) {
    CUdeviceptr block = 0;
    unsigned char first = 0, other = 0;
    start();
    CUresult open = cuIpcOpenMemHandle_v2(&block, parsed(text), 1);
    if (!open) {
        OK(cuMemcpyDtoH_v2(&first, block, 1));
        OK(cuMemcpyDtoH_v2(&other, block + strtoull(place, NULL, 10), 1));
        OK(cuIpcCloseMemHandle(block));
    }
    printf("read: open %d, bytes %d %d\n", open, first, other);
}

int main(int argc, char **argv) {
    TRUE(argc >= 2);
    const char *how = argv[1];
    is_mapped = argc == 3 && !strcmp(argv[2], "mapped");
    if (!strcmp(how, "many")) many();
    else if (!strcmp(how, "killed")) killed();
    else if (!strcmp(how, "stale")) stale();
    else if (!strcmp(how, "dead")) dead(no_fork);
    else if (!strcmp(how, "orphan")) dead(fork);
    else if (!strcmp(how, "raw-orphan")) dead(raw_fork);
    else if (!strcmp(how, "unheard")) unheard();
    else if (!strcmp(how, "user")) user();
    else if (!strcmp(how, "network")) network();
    else if (!strcmp(how, "plain")) plain(argv[0]);
    else if (argc == 3 && !strcmp(how, "without")) without(argv[2]);
    else if (argc == 4 && !strcmp(how, "read")) read_two(argv[2], argv[3]);
    else return 4;
    return 0;
}
