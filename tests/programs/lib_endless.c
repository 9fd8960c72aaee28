// Allocates and frees until the process is gone. For a thread of Python that never comes back to it.

#include <stddef.h>

void allocate_for_ever(int (*allocate)(unsigned long long *, size_t), int (*release)(unsigned long long))
{
    for (;;) {
        unsigned long long address = 0;
        if (allocate(&address, 4096) == 0)
            release(address);
    }
}
