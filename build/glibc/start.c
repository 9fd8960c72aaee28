/* The start of a program, for glibc before 2.34: there a program called its own constructors. A later
   glibc leaves that to a program that brings a function for it. */
#include <stddef.h>

typedef void Constructor(int, char **, char **);
typedef int Main(int, char **, char **);

extern Constructor *__preinit_array_start[] __attribute__((visibility("hidden")));
extern Constructor *__preinit_array_end[] __attribute__((visibility("hidden")));
extern Constructor *__init_array_start[] __attribute__((visibility("hidden")));
extern Constructor *__init_array_end[] __attribute__((visibility("hidden")));
extern void _init(void) __attribute__((visibility("hidden")));

extern int of_glibc(Main *, int, char **, Constructor *, void (*)(void), void (*)(void), void *);
__asm__(".symver of_glibc,__libc_start_main@GLIBC_2.2.5");

static void constructors(int count, char **arguments, char **environment)
{
    for (Constructor **each = __preinit_array_start; each < __preinit_array_end; each++)
        (*each)(count, arguments, environment);
    _init();
    for (Constructor **each = __init_array_start; each < __init_array_end; each++)
        (*each)(count, arguments, environment);
}

/* In the place of the one that the compiler's start-up code calls, without a function for constructors. */
__attribute__((visibility("hidden"))) int __libc_start_main(Main *main, int count, char **arguments, Constructor *init,
                                                            void (*fini)(void), void (*of_loader)(void), void *stack)
{
    return of_glibc(main, count, arguments, init != NULL ? init : constructors, fini, of_loader, stack);
}
