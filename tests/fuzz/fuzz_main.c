/*
 * fuzz_main.c: runs a fuzz target as an ordinary test.
 *
 * Every file of the corpus folder is given to the target as it is, then mutations of it from a fixed seed: the same
 * inputs in every run.  DURITE_TEST_SCALE (percent) scales the number of mutations, DURITE_FUZZ_SEED changes the seed.
 * A finding is a crash; the input that did it is in fuzz-last.bin in the working directory.
 */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { INPUT_BYTES_MAX = 1 << 20, MUTATED_BYTES_MAX = 1 << 16 };
#ifndef MUTATIONS_PER_FILE
#define MUTATIONS_PER_FILE 200u
#endif

/* The input that is running, in a shared mapping of a file: there after a crash, without a system call for each. */
typedef struct last_input {
    uint64_t size;
    uint8_t data[INPUT_BYTES_MAX];
} last_input;

static last_input *last;
static uint64_t state;

static uint64_t next_random(void) { /* xorshift64* */
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    return state * UINT64_C(2685821657736338717);
}

static size_t below(size_t bound) {
    return (size_t)(next_random() % bound);
}

static void run(const uint8_t *data, size_t size) {
    /* An exact copy on the heap, so that a sanitizer sees a read beyond its end. */
    uint8_t *copy = malloc(size > 0 ? size : 1);
    if (copy == NULL) abort();
    memcpy(copy, data, size);
    last->size = size;
    memcpy(last->data, data, size);
    (void)LLVMFuzzerTestOneInput(copy, size);
    free(copy);
}

/* Change a few bytes, cut, remove or repeat a piece, put in a character that parsers care about. */
static size_t mutate(uint8_t *data, size_t size) {
    static const char interesting[] = "\"\\{}[]:,0-9eE.+truefalsn\x80\xff\xed\xa0\x00\x1f";
    for (size_t changes = 1 + below(8); changes > 0 && size > 0; changes--) {
        size_t at = below(size);
        size_t piece = 1 + below(size - at);
        switch (below(5)) {
        case 0:
            data[at] = (uint8_t)next_random();
            break;
        case 1:
            data[at] = (uint8_t)interesting[below(sizeof(interesting) - 1)];
            break;
        case 2:
            size = at;
            break;
        case 3:
            memmove(data + at, data + at + piece, size - at - piece);
            size -= piece;
            break;
        default:
            if (size + piece <= MUTATED_BYTES_MAX) {
                memmove(data + at + piece, data + at, size - at);
                size += piece;
            }
            break;
        }
    }
    return size;
}

static size_t mutations(void) {
    const char *scale = getenv("DURITE_TEST_SCALE");
    unsigned long percent = scale != NULL ? strtoul(scale, NULL, 10) : 100;
    return (size_t)(MUTATIONS_PER_FILE * percent / 100);
}

static bool run_file(const char *folder, const char *name) {
    static uint8_t original[INPUT_BYTES_MAX], changed[INPUT_BYTES_MAX];
    char path[4096];
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    size_t size = fread(original, 1, sizeof(original), file);
    (void)fclose(file);
    run(original, size);
    size_t mutable_size = size < MUTATED_BYTES_MAX / 2 ? size : MUTATED_BYTES_MAX / 2;
    for (size_t i = mutations(); i > 0; i--) {
        memcpy(changed, original, mutable_size);
        run(changed, mutate(changed, mutable_size));
    }
    return true;
}

static last_input *last_input_open(void) {
    int fd = open("fuzz-last.bin", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)sizeof(last_input)) != 0) return NULL;
    void *memory = mmap(NULL, sizeof(last_input), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    return memory != MAP_FAILED ? memory : NULL;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER\n", argv[0]);
        return 2;
    }
    const char *seed = getenv("DURITE_FUZZ_SEED");
    state = seed != NULL ? strtoull(seed, NULL, 10) : 1;
    if (state == 0) state = 1;
    printf("# seed %" PRIu64 "\n", state);
    last = last_input_open();
    if (last == NULL) {
        perror("fuzz-last.bin");
        return EXIT_FAILURE;
    }

    static const uint8_t nothing[1];
    run(nothing, 0);
    struct dirent **names = NULL;
    int count = scandir(argv[1], &names, NULL, alphasort); /* sorted: the seed decides everything */
    int tests = 0;
    bool all_read = true;
    for (int i = 0; i < count; i++) {
        if (names[i]->d_name[0] != '.') {
            bool read = run_file(argv[1], names[i]->d_name);
            printf("%s %d - %s\n", read ? "ok" : "not ok", ++tests, names[i]->d_name);
            (void)fflush(stdout);
            all_read = all_read && read;
        }
        free(names[i]);
    }
    free(names);
    (void)unlink("fuzz-last.bin"); /* nothing was found */
    printf("1..%d\n", tests);
    if (tests == 0) printf("# no corpus in %s\n", argv[1]);
    return tests > 0 && all_read ? EXIT_SUCCESS : EXIT_FAILURE;
}
