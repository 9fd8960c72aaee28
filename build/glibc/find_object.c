/* `_dl_find_object` of glibc 2.35, for the unwinder that a newer compiler links in. It is asked where code of
   ours panics: rarely. */
#define _GNU_SOURCE
#include <link.h>
#include <stdint.h>

/* `struct dl_find_object` of this architecture. */
struct found {
    unsigned long long flags;
    void *start, *end;
    struct link_map *object;
    void *unwind_table;
    unsigned long long reserved[7];
};

struct wanted {
    uintptr_t address;
    struct found *found;
};

static int look(struct dl_phdr_info *info, size_t size, void *argument)
{
    struct wanted *wanted = argument;
    uintptr_t start = UINTPTR_MAX, end = 0, table = 0;
    int is_in = 0;
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *header = &info->dlpi_phdr[i];
        uintptr_t from = info->dlpi_addr + header->p_vaddr;
        if (header->p_type == PT_GNU_EH_FRAME)
            table = from;
        if (header->p_type != PT_LOAD)
            continue;
        if (from < start)
            start = from;
        if (from + header->p_memsz > end)
            end = from + header->p_memsz;
        is_in |= wanted->address - from < header->p_memsz;
    }
    if (!is_in)
        return 0;
    if (table == 0)
        return -1;
    *wanted->found = (struct found){
        .start = (void *)start,
        .end = (void *)end,
        .unwind_table = (void *)table,
    };
    return 1;
}

/* Named so for the linker only: a newer glibc's header declares it. */
__attribute__((visibility("hidden"))) int find_object(void *address, struct found *found) __asm__("_dl_find_object");

int find_object(void *address, struct found *found)
{
    struct wanted wanted = {(uintptr_t)address, found};
    return dl_iterate_phdr(look, &wanted) == 1 ? 0 : -1;
}
