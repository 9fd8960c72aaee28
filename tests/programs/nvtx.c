/* Ranges and marks of NVTX with allocations among them, each of another size. Arguments: a part, and what it needs. What
   NVTX answers are notes: they depend on the attached tool. */
#include "program.h"
#include "nvtx.h"
#include <sys/syscall.h>

static Event event(int type, const void *message) {
    Event made = {.version = 3, .size = sizeof made, .message_type = type, .message = message};
    return made;
}

#define NOTE(what, call) printf("# %s %lld\n", what, (long long)(intptr_t)(call))
#define TEXT(type, message) (&(Event[]){event(type, message)}[0])

static void names(void) { printf("# thread %d\n", (int)syscall(SYS_gettid)); }

/* Every function, with the first range open before CUDA is used. */
static void all(void) {
    NOTE("push", RangePushA("outer"));
    start();
    allocate(1000);
    Domain tools = DomainCreateA("tools"), wide = DomainCreateW(L"weite D\u00f6m\u00e4ne");
    NOTE("domain", tools == NULL);
    NOTE("domain", wide == NULL);
    String narrow = DomainRegisterStringA(tools, "registered"), broad = DomainRegisterStringW(wide, L"gro\u00df");
    NOTE("string", narrow == NULL);
    NOTE("string", broad == NULL);
    NOTE("push", RangePushEx(TEXT(ASCII, "inner")));
    allocate(2000);
    NOTE("push", DomainRangePushEx(tools, TEXT(REGISTERED, narrow)));
    allocate(3000);
    NOTE("pop", RangePop());
    allocate(4000);
    NOTE("pop", DomainRangePop(tools));
    allocate(5000);
    NOTE("push", RangePushW(L"\u4e2d"));
    NOTE("push", DomainRangePushEx(wide, TEXT(REGISTERED, broad)));
    NOTE("push", DomainRangePushEx(wide, TEXT(UNICODE, L"wide")));
    allocate(6000);
    NOTE("pop", DomainRangePop(wide));
    NOTE("pop", DomainRangePop(wide));
    NOTE("pop", RangePop());
    MarkA("a mark");
    MarkW(L"wide mark");
    MarkEx(TEXT(0, NULL));
    DomainMarkEx(tools, TEXT(REGISTERED, narrow));
    uint64_t first = RangeStartA("over"), second = DomainRangeStartEx(tools, TEXT(ASCII, "across"));
    uint64_t third = RangeStartEx(TEXT(ASCII, "third")), fourth = RangeStartW(L"fourth");
    printf("# numbers %llu %llu %llu %llu\n", (long long)first, (long long)second, (long long)third, (long long)fourth);
    DomainRangeEnd(tools, second);
    RangeEnd(first);
    RangeEnd(fourth);
    RangeEnd(third);
    NOTE("pop", RangePop());
    NOTE("pop", RangePop());
    NOTE("pop", DomainRangePop(wide));
    allocate(7000);
    NameCategoryA(1, "category");
    NameOsThreadA((uint32_t)syscall(SYS_gettid), "by NVTX");
    DomainDestroy(tools);
    Initialize(NULL);
}

/* Handles that no tool gave out, and structures that are too short. */
static void strange(void) {
    start();
    int nothing = 0;
    Event small = event(ASCII, "unseen");
    small.size = 40;
    NOTE("push", DomainRangePushEx(&nothing, TEXT(REGISTERED, &nothing)));
    NOTE("push", RangePushEx(&small));
    NOTE("push", RangePushEx(NULL));
    NOTE("push", RangePushA(NULL));
    allocate(1000);
    for (int i = 0; i < 4; i++) NOTE("pop", RangePop());
    MarkA(NULL);
    NOTE("domain", DomainCreateA(NULL) == NULL);
    NOTE("string", DomainRegisterStringW(NULL, NULL) == NULL);
}

static void *in_no_range(void *bytes) {
    CUcontext context;
    OK(cuDevicePrimaryCtxRetain(&context, 0));
    OK(cuCtxSetCurrent(context));
    allocate((size_t)bytes);
    return NULL;
}

static void *in_its_own(void *bytes) {
    RangePushA("own");
    in_no_range(bytes);
    RangePop();
    return NULL;
}

static void on_a_thread(void *(*body)(void *), size_t bytes) {
    pthread_t thread;
    OK(pthread_create(&thread, NULL, body, (void *)bytes));
    OK(pthread_join(thread, NULL));
}

/* Whose ranges the work of threads belongs to. */
static void threads(void) {
    start();
    allocate(1000);
    on_a_thread(in_no_range, 2000);
    RangePushA("phase");
    on_a_thread(in_no_range, 3000);
    on_a_thread(in_its_own, 4000);
    on_a_thread(in_no_range, 5000);
    allocate(6000);
    RangePushA("next");
    on_a_thread(in_no_range, 7000);
    RangePop();
    on_a_thread(in_no_range, 8000);
    RangePop();
    on_a_thread(in_no_range, 9000);
}

/* More ranges than are kept. */
static void deep(void) {
    enum { LEVELS = 70 };
    char name[16];
    start();
    for (int i = 0; i < LEVELS; i++) {
        snprintf(name, sizeof name, "level %d", i);
        int level = RangePushA(name);
        TRUE(level == i || level == -2);
        allocate(1000 + (size_t)i);
    }
    for (int i = LEVELS; i-- > 0;) {
        int level = RangePop();
        TRUE(level == i || level == -2);
    }
    allocate(5000);
}

/* Threads with names of their own: one that lives, one that ends at once. */
static void *named(void *name) {
    OK(pthread_setname_np(pthread_self(), name));
    in_no_range((void *)1000);
    names();
    sleep_ms(strcmp(name, "short") ? 300 : 0);
    return NULL;
}

static void thread_names(void) {
    pthread_t lives, ends;
    NameOsThreadW(47114711, L"f\u00fcr sp\u00e4ter");
    start();
    allocate(1000);
    names();
    OK(pthread_create(&lives, NULL, named, "lives"));
    OK(pthread_join(lives, NULL));
    OK(pthread_create(&ends, NULL, named, "short"));
    OK(pthread_join(ends, NULL));
}

/* The same in a library, which has a table of its own. */
static void two(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    TRUE(library != NULL);
    int (*push)(const char *) = NULL;
    int (*pop)(void) = NULL;
    *(void **)&push = dlsym(library, "push");
    *(void **)&pop = dlsym(library, "pop");
    start();
    NOTE("push", RangePushA("of the program"));
    NOTE("push", push("of the library"));
    allocate(1000);
    NOTE("pop", pop());
    NOTE("pop", RangePop());
}

int main(int argc, char **argv) {
    TRUE(argc >= 2);
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char *part = argv[1], *injection = getenv("NVTX_INJECTION64_PATH");
    printf("# injection %s\n", !injection ? "none" : strstr(injection, "libgpushim") ? "gpushim" : "another");
    if (!strcmp(part, "exec")) {
        execl(argv[0], argv[0], argv[2], (char *)NULL);
        return 9;
    }
    if (!strcmp(part, "late")) {
        TRUE(dlopen(argv[2], RTLD_NOW) != NULL);
        printf("late: %s\n", getenv("NVTX_INJECTION64_PATH") ? "set" : "unset");
    }
    if (!strcmp(part, "extension")) {
        int (*extension)(void *) = NULL;
        *(void **)&extension = nvtx_injection("InitializeInjectionNvtxExtension");
        printf("extension: %d\n", extension ? extension(&extension) : 0);
    }
    if (!strcmp(part, "idle")) NOTE("push", RangePushA("nothing happens"));
    if (!strcmp(part, "all")) all();
    if (!strcmp(part, "strange")) strange();
    if (!strcmp(part, "threads")) threads();
    if (!strcmp(part, "deep")) deep();
    if (!strcmp(part, "names")) thread_names();
    if (!strcmp(part, "two")) two(argv[2]);
    return 0;
}
