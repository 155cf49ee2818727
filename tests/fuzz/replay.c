/* SPDX-License-Identifier: MIT */
/* A main for fuzz targets where libFuzzer is not used: runs the target once on each file named, or on the files of each
 * folder named. A target that finds a fault ends the program, so reaching the end is the proof. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int replay_file(const char *path)
{
    struct stat status;
    FILE *file = fopen(path, "rb");
    uint8_t *data = NULL;
    size_t size = 0;
    int failed = 1;

    if (!file || fstat(fileno(file), &status) != 0) goto out;
    /* exactly as large as the input, so that a sanitizer sees a read past its end */
    size = (size_t)status.st_size;
    data = malloc(size ? size : 1);
    if (!data || fread(data, 1, size, file) != size) goto out;
    LLVMFuzzerTestOneInput(data, size);
    failed = 0;
out:
    if (failed) perror(path);
    if (file) fclose(file);
    free(data);
    return failed;
}

static int replay_folder(const char *path, int *count)
{
    struct dirent **entries = NULL;
    char file[4096];
    int n = scandir(path, &entries, NULL, alphasort), failed = n < 0;

    if (failed) perror(path);
    for (int i = 0; i < n; i++) {
        snprintf(file, sizeof file, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            failed |= replay_file(file);
            (*count)++;
        }
        free(entries[i]);
    }
    free(entries);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0, count = 0;
    struct stat status;

    for (int i = 1; i < argc; i++) {
        if (stat(argv[i], &status) == 0 && S_ISDIR(status.st_mode)) {
            failed |= replay_folder(argv[i], &count);
        } else {
            failed |= replay_file(argv[i]);
            count++;
        }
    }
    printf("%d inputs\n", count);
    return failed || count == 0;
}
