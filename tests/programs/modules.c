/* Code is loaded: by every function that does it; with the argument `bare` without a context. */
#include "program.h"

typedef CUresult LoadLibrary(void **, const void *, void *, void *, unsigned, void *, void *, unsigned);

int main(int argc, char **argv) {
    static const char code[] = "code";
    CUresult (*by_name)(void **, const char *) = NULL, (*ex)(void **, const void *, unsigned, void *, void *) = NULL;
    CUresult (*fat)(void **, const void *) = NULL, (*module_of)(void **, void *) = NULL;
    LoadLibrary *data = NULL, *file = NULL;
    void *loaded[7] = {0};
    if (argc > 1) {
        open_driver();
        OK(cuInit(0));
    } else {
        start();
    }
    *(void **)&data = dlsym(driver, "cuLibraryLoadData");
    *(void **)&file = dlsym(driver, "cuLibraryLoadFromFile");
    *(void **)&by_name = dlsym(driver, "cuModuleLoad");
    *(void **)&ex = dlsym(driver, "cuModuleLoadDataEx");
    *(void **)&fat = dlsym(driver, "cuModuleLoadFatBinary");
    *(void **)&module_of = dlsym(driver, "cuLibraryGetModule");
    OK(data(&loaded[0], code, NULL, NULL, 0, NULL, NULL, 0));
    if (argc > 1) return 0;
    OK(file(&loaded[1], argv[0], NULL, NULL, 0, NULL, NULL, 0));
    OK(by_name(&loaded[2], argv[0]));
    OK(cuModuleLoadData(&loaded[3], code));
    OK(ex(&loaded[4], code, 0, NULL, NULL));
    OK(fat(&loaded[5], code));
    OK(module_of(&loaded[6], loaded[0]));
    for (size_t i = 0; i < 7; i++) printf("# module %llu\n", (unsigned long long)loaded[i]);
    printf("not there: %d\n", by_name(&loaded[0], "/not/there"));
    OK(cuModuleUnload(loaded[3]));
    return 0;
}
