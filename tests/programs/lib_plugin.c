/* A plugin that is loaded RTLD_LOCAL and looks for its own symbol by name, as extension modules do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
int plugin_secret(void) { return 42; }
void *plugin_looks(int where) { return dlsym(where ? RTLD_NEXT : RTLD_DEFAULT, where ? "puts" : "plugin_secret"); }
