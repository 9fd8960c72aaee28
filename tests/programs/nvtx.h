/* A client of NVTX 3 as its headers make one of each library that includes them: functions that go through pointers,
   which lead at first to the start, where the library that NVTX_INJECTION64_PATH names writes its callbacks. Written
   for these tests; names less their `nvtx`. */
#ifndef NVTX_H
#define NVTX_H
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <wchar.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    const void *message;
} Event;
enum { ASCII = 1, UNICODE = 2, REGISTERED = 3 };
typedef void *Domain, *String;
typedef void (*Any)(void);
typedef struct {
    size_t size;
    int (*get_module)(unsigned, Any ***, unsigned *);
} Callbacks;
typedef const void *GetExportTable(uint32_t);

#define CORE(F) \
    F(1, MarkEx, void, (void)0, (const Event *e), (e)) F(2, MarkA, void, (void)0, (const char *t), (t)) \
    F(3, MarkW, void, (void)0, (const wchar_t *t), (t)) F(4, RangeStartEx, uint64_t, 0, (const Event *e), (e)) \
    F(5, RangeStartA, uint64_t, 0, (const char *t), (t)) F(6, RangeStartW, uint64_t, 0, (const wchar_t *t), (t)) \
    F(7, RangeEnd, void, (void)0, (uint64_t n), (n)) F(8, RangePushEx, int, -2, (const Event *e), (e)) \
    F(9, RangePushA, int, -2, (const char *t), (t)) F(10, RangePushW, int, -2, (const wchar_t *t), (t)) \
    F(11, RangePop, int, -2, (void), ()) F(12, NameCategoryA, void, (void)0, (uint32_t c, const char *t), (c, t)) \
    F(13, NameCategoryW, void, (void)0, (uint32_t c, const wchar_t *t), (c, t)) \
    F(14, NameOsThreadA, void, (void)0, (uint32_t i, const char *t), (i, t)) \
    F(15, NameOsThreadW, void, (void)0, (uint32_t i, const wchar_t *t), (i, t))
#define CORE2(F) \
    F(1, DomainMarkEx, void, (void)0, (Domain d, const Event *e), (d, e)) \
    F(2, DomainRangeStartEx, uint64_t, 0, (Domain d, const Event *e), (d, e)) \
    F(3, DomainRangeEnd, void, (void)0, (Domain d, uint64_t n), (d, n)) \
    F(4, DomainRangePushEx, int, -2, (Domain d, const Event *e), (d, e)) F(5, DomainRangePop, int, -2, (Domain d), (d)) \
    F(10, DomainRegisterStringA, String, NULL, (Domain d, const char *t), (d, t)) \
    F(11, DomainRegisterStringW, String, NULL, (Domain d, const wchar_t *t), (d, t)) \
    F(12, DomainCreateA, Domain, NULL, (const char *t), (t)) F(13, DomainCreateW, Domain, NULL, (const wchar_t *t), (t)) \
    F(14, DomainDestroy, void, (void)0, (Domain d), (d)) F(15, Initialize, void, (void)0, (const void *r), (r))

static void nvtx_start(void);
#define DEFINE(id, name, type, nothing, parameters, arguments)                                              \
    static type name##_first parameters;                                                                    \
    static type(*name##_now) parameters = name##_first;                                                     \
    static type name parameters { return name##_now ? name##_now arguments : nothing; }                     \
    static type name##_first parameters {                                                                   \
        nvtx_start();                                                                                       \
        return name arguments;                                                                              \
    }
CORE(DEFINE)
CORE2(DEFINE)
#undef DEFINE

#define PLACE(id, name, ...) [id] = (Any *)&name##_now,
static Any *nvtx_core[17] = {CORE(PLACE)}, *nvtx_core2[17] = {CORE2(PLACE)};
#undef PLACE

static int nvtx_module(unsigned module, Any ***table, unsigned *entries) {
    if (module != 1 && module != 5) return 0;
    *table = module == 1 ? nvtx_core : nvtx_core2;
    *entries = 16;
    return 1;
}

static const void *nvtx_table(uint32_t number) {
    static const Callbacks callbacks = {sizeof callbacks, nvtx_module};
    return number == 1 ? &callbacks : NULL;
}

/* The function of this name in the library that is named; NULL if there is none. */
static void *nvtx_injection(const char *name) {
    const char *path = getenv("NVTX_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_LAZY) : NULL;
    return library ? dlsym(library, name) : NULL;
}

/* To be called first by one thread alone. */
static void nvtx_start(void) {
    int (*initialize)(GetExportTable *) = NULL;
    *(void **)&initialize = nvtx_injection("InitializeInjectionNvtx2");
    int accepted = initialize && initialize(nvtx_table);
#define DROP(id, name, ...) \
    if (!accepted || name##_now == name##_first) name##_now = NULL;
    CORE(DROP)
    CORE2(DROP)
#undef DROP
}
#endif
