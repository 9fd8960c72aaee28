/* Functions that were in libpthread and libdl until glibc 2.34.
 *
 * A library that is preloaded into every process can neither require those two, which costs each of them
 * two more files to map, nor rely on their being there: the oldest glibc has processes without. So these
 * are optional for the loader. Where it found none, the function is looked up when it is needed: a process
 * that uses CUDA has both by then, since the driver requires them.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <link.h>
#include <pthread.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>

#define OURS __attribute__((visibility("hidden")))

/* `name` of the version in which the loader knows it: `function` is null where it does not. */
#define OPTIONAL(name, version)                               \
    extern __typeof__(name) of_loader_##name __attribute__((weak)); \
    __asm__(".symver of_loader_" #name "," #name "@" version);

/* Defines `name` as what calls the process's own, or else gives `missing`. */
#define FORWARD(result, name, version, missing, parameters, arguments)                        \
    OPTIONAL(name, version)                                                                   \
    OURS result name parameters                                                               \
    {                                                                                         \
        static __typeof__(name) *known;                                                       \
        __typeof__(name) *real = __atomic_load_n(&known, __ATOMIC_RELAXED);                   \
        if (real == NULL) {                                                                   \
            real = BY_LOADER(name);                                                           \
            if (real == NULL)                                                                 \
                real = (__typeof__(name) *)look_up(#name);                                    \
            if (real == NULL)                                                                 \
                return missing;                                                               \
            __atomic_store_n(&known, real, __ATOMIC_RELAXED);                                 \
        }                                                                                     \
        return real arguments;                                                                \
    }

#ifndef BY_LOADER
#define BY_LOADER(name) of_loader_##name
#endif

struct wanted {
    const char *name;
    void *address;
};

/* An address of the dynamic section: relocated by the loader, or not. */
static const void *table(const struct dl_phdr_info *info, uintptr_t address)
{
    return (const void *)(address < info->dlpi_addr ? info->dlpi_addr + address : address);
}

static int is_of_glibc(const char *path)
{
    static const char *const names[] = {"libpthread.so.0", "libpthread-2.", "libdl.so.2", "libdl-2.", "libc.so.6"};
    const char *name = strrchr(path, '/');
    name = name == NULL ? path : name + 1;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], strlen(names[i])) == 0)
            return 1;
    return 0;
}

/* Looks into one library, by the hash table that all of glibc's have. */
static int look(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct wanted *wanted = argument;
    const ElfW(Dyn) *entry = NULL;
    const ElfW(Sym) *symbols = NULL;
    const char *names = NULL;
    const uint32_t *hashes = NULL;
    const uint16_t *versions = NULL;
    uint32_t hash = 5381;
    (void)size;
    if (info->dlpi_name == NULL || !is_of_glibc(info->dlpi_name))
        return 0;
    for (int i = 0; i < info->dlpi_phnum; i++)
        if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
            entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        const void *at = table(info, entry->d_un.d_ptr);
        if (entry->d_tag == DT_SYMTAB)
            symbols = at;
        else if (entry->d_tag == DT_STRTAB)
            names = at;
        else if (entry->d_tag == DT_GNU_HASH)
            hashes = at;
        else if (entry->d_tag == DT_VERSYM)
            versions = at;
    }
    if (symbols == NULL || names == NULL || hashes == NULL || hashes[0] == 0)
        return 0;
    for (const char *letter = wanted->name; *letter != 0; letter++)
        hash = hash * 33 + (unsigned char)*letter;
    /* Buckets, number of the first symbol, words of the filter, its shift; the filter, the buckets, the chains. */
    const uint32_t *buckets = hashes + 4 + hashes[2] * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
    const uint32_t *chains = buckets + hashes[0];
    uint32_t number = buckets[hash % hashes[0]];
    if (number < hashes[1])
        return 0;
    for (;; number++) {
        uint32_t chain = chains[number - hashes[1]];
        const ElfW(Sym) *symbol = &symbols[number];
        /* Not a version that is kept for old programs only. */
        int is_current = versions == NULL || (versions[number] & 0x8000) == 0;
        if ((chain | 1) == (hash | 1) && is_current && symbol->st_shndx != SHN_UNDEF &&
            strcmp(names + symbol->st_name, wanted->name) == 0) {
            wanted->address = (void *)(info->dlpi_addr + symbol->st_value);
            return 1;
        }
        if (chain & 1)
            return 0;
    }
}

static void *look_up(const char *name)
{
    struct wanted wanted = {name, NULL};
    dl_iterate_phdr(look, &wanted);
    return wanted.address;
}

FORWARD(int, pthread_create, "GLIBC_2.2.5", ENOSYS,
        (pthread_t * thread, const pthread_attr_t *with, void *(*run)(void *), void *of), (thread, with, run, of))
FORWARD(int, pthread_join, "GLIBC_2.2.5", ENOSYS, (pthread_t thread, void **result), (thread, result))
FORWARD(int, pthread_detach, "GLIBC_2.2.5", ENOSYS, (pthread_t thread), (thread))
FORWARD(int, pthread_once, "GLIBC_2.2.5", ENOSYS, (pthread_once_t * done, void (*run)(void)), (done, run))
FORWARD(int, pthread_key_create, "GLIBC_2.2.5", ENOSYS, (pthread_key_t * key, void (*end)(void *)), (key, end))
FORWARD(int, pthread_key_delete, "GLIBC_2.2.5", ENOSYS, (pthread_key_t key), (key))
FORWARD(int, pthread_setspecific, "GLIBC_2.2.5", ENOSYS, (pthread_key_t key, const void *value), (key, value))
FORWARD(int, pthread_setname_np, "GLIBC_2.12", ENOSYS, (pthread_t thread, const char *name), (thread, name))
FORWARD(int, pthread_sigmask, "GLIBC_2.2.5", ENOSYS, (int how, const sigset_t *set, sigset_t *before), (how, set, before))
FORWARD(int, pthread_getattr_np, "GLIBC_2.2.5", ENOSYS, (pthread_t thread, pthread_attr_t *of), (thread, of))
FORWARD(int, pthread_attr_getguardsize, "GLIBC_2.2.5", ENOSYS, (const pthread_attr_t *of, size_t *size), (of, size))
FORWARD(int, pthread_attr_getstack, "GLIBC_2.2.5", ENOSYS, (const pthread_attr_t *of, void **low, size_t *size),
        (of, low, size))
FORWARD(int, pthread_attr_setstacksize, "GLIBC_2.2.5", ENOSYS, (pthread_attr_t * of, size_t size), (of, size))
FORWARD(int, dladdr, "GLIBC_2.2.5", 0, (const void *address, Dl_info *info), (address, info))
FORWARD(void *, dlvsym, "GLIBC_2.2.5", NULL, (void *library, const char *name, const char *version),
        (library, name, version))
