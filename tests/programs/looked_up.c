/* What build/glibc/threads.c does where the loader found none of its functions. */
#define BY_LOADER(name) NULL
#include "../../build/glibc/threads.c"

#include <stdio.h>
#include <unistd.h>

static int ended;

static void at_end(void *value)
{
    ended += *(int *)value;
}

static void once(void)
{
    ended += 100;
}

static void *thread(void *key)
{
    static int seven = 7;
    static pthread_once_t done = PTHREAD_ONCE_INIT;
    char name[16] = "";
    pthread_attr_t attributes;
    void *low = NULL;
    size_t size = 0;
    sigset_t signals;
    if (pthread_once(&done, once) != 0 || pthread_setspecific(*(pthread_key_t *)key, &seven) != 0)
        return NULL;
    if (pthread_setname_np(pthread_self(), "looked-up") != 0 || pthread_getname_np(pthread_self(), name, 16) != 0)
        return NULL;
    sigfillset(&signals);
    if (pthread_sigmask(SIG_SETMASK, &signals, NULL) != 0 || pthread_getattr_np(pthread_self(), &attributes) != 0)
        return NULL;
    if (pthread_attr_getstack(&attributes, &low, &size) != 0 || pthread_attr_destroy(&attributes) != 0)
        return NULL;
    printf("%s, on its stack: %d\n", name, (char *)&size >= (char *)low && (char *)&size < (char *)low + size);
    return key;
}

int main(void)
{
    pthread_key_t key;
    pthread_t other;
    pthread_attr_t attributes;
    size_t guard = 0;
    void *result = NULL;
    Dl_info info = {0};
    pthread_attr_init(&attributes);
    if (pthread_attr_setstacksize(&attributes, 1 << 20) != 0 || pthread_attr_getguardsize(&attributes, &guard) != 0)
        return 1;
    if (pthread_key_create(&key, at_end) != 0 || pthread_create(&other, &attributes, thread, &key) != 0)
        return 2;
    if (pthread_join(other, &result) != 0 || pthread_key_delete(key) != 0 || result != &key)
        return 3;
    if (pthread_create(&other, NULL, thread, &key) != 0 || pthread_detach(other) != 0)
        return 4;
    if (dladdr((void *)puts, &info) == 0 || strstr(info.dli_fname, "libc.so") == NULL)
        return 5;
    if (dlvsym(RTLD_DEFAULT, "puts", "GLIBC_2.2.5") != (void *)puts)
        return 6;
    printf("guard %d, ended %d, unknown %d\n", guard > 0, ended, look_up("no_function_of_glibc") != NULL);
    fflush(stdout);
    _exit(0);
}
