/* Which exported function cuGetProcAddress answers with, per name, version and flags; and dlsym, per spelling. */
#include "program.h"
#include "names.h"

int main(void) {
    static const int versions[] = {2000, 3010, 3020, 4000, 6050, 7000, 8000, 9000, 10000, 10010, 11000, 11010, 11020, 11030,
                                   11040, 11060, 12000, 12020, 12030, 12050, 12080, 13000};
    static const char *const suffixes[] = {"", "_v2", "_v3", "_v4", "_ptsz", "_v2_ptsz", "_ptds", "_v2_ptds"};
    ProcAddress *get = NULL;
    int substituted = 0, answered = 0;
    start();
    *(void **)&get = dlsym(driver, "cuGetProcAddress_v2");
    TRUE(get != NULL);
    for (int n = 0; n < NAME_COUNT; n++)
        for (int flags = 0; flags <= 2; flags++)
            for (size_t v = 0; v < sizeof versions / sizeof *versions; v++) {
                void *found = (void *)1;
                int status = -1;
                int result = get(NAMES[n], &found, versions[v], (uint64_t)flags, &status);
                printf("%s %d %d: %d %d %s\n", NAMES[n], versions[v], flags, result, status, symbol_at(found));
                answered += found != NULL;
                substituted += !strcmp(library_of(found), "libgpushim.so");
            }
    for (int n = 0; n < NAME_COUNT; n++)
        for (size_t s = 0; s < sizeof suffixes / sizeof *suffixes; s++) {
            char name[96];
            snprintf(name, sizeof name, "%s%s", NAMES[n], suffixes[s]);
            printf("dlsym %s: %s\n", name, symbol_at(dlsym(driver, name)));
        }
    printf("null function: %d\n", get("cuMemAlloc", NULL, 12000, 0, NULL));
    printf("null name: %d\n", get(NULL, (void *[]){NULL}, 12000, 0, NULL));
    printf("# answered %d substituted %d\n", answered, substituted);
    return 0;
}
