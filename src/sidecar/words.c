/* words.c - a command line as words, and the program that its first word names.
 *
 * Blanks divide words. '…' is taken as it is, "…" with \" and \\ in it, and \ makes the next
 * character plain. There is no shell: $, *, > and | mean nothing here. */
#include "sidecar/sidecar_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct words {
    const char *at, *start;
    char *to;
    struct fault *why;
};

static enum err quoted(struct words *w)
{
    char quote = *w->at;
    const char *opened = w->at++;
    while (*w->at && *w->at != quote) {
        if (quote == '"' && *w->at == '\\' && (w->at[1] == '"' || w->at[1] == '\\'))
            w->at++;
        *w->to++ = *w->at++;
    }
    if (!*w->at)
        return fault_set(w->why, ERR_INVALID, "command: the %c at position %zu is not closed",
                         quote, (size_t)(opened - w->start) + 1);
    w->at++;
    return OK;
}

static enum err word(struct words *w)
{
    enum err err = OK;
    while (!err && *w->at && !strchr(" \t\n", *w->at)) {
        if (*w->at == '\'' || *w->at == '"') {
            err = quoted(w);
            continue;
        }
        if (*w->at == '\\' && w->at[1])
            w->at++;
        *w->to++ = *w->at++;
    }
    *w->to++ = 0;
    return err;
}

enum err words_split(const char *text, char ***out, struct fault *why)
{
    size_t size = text ? strlen(text) : 0;
    /* No word is longer than what it was read from, and there are at most size / 2 + 1 of them. */
    char **words = calloc(1, (size / 2 + 2) * sizeof *words + 2 * size + 2);
    if (!words)
        return ERR_NO_MEMORY;
    struct words w = {
        .at = text ? text : "", .start = text, .to = (char *)(words + size / 2 + 2), .why = why};
    size_t n = 0;
    enum err err = OK;
    for (w.at += strspn(w.at, " \t\n"); !err && *w.at; w.at += strspn(w.at, " \t\n")) {
        words[n++] = w.to;
        err = word(&w);
    }
    if (!err && n == 0)
        err = fault_set(why, ERR_INVALID, "command: it has no words");
    if (err)
        free(words);
    else
        *out = words;
    return err;
}

static bool runs(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

enum err words_program(char **words, char **path, struct fault *why)
{
    const char *name = words[0];
    if (strchr(name, '/')) {
        if (!runs(name))
            return fault_set(why, ERR_NOT_FOUND,
                             "%s is no program that can be run: is it there, and is it executable "
                             "(chmod +x)?",
                             name);
        *path = strdup(name);
        return *path ? OK : ERR_NO_MEMORY;
    }
    const char *from = getenv("PATH");
    for (from = from ? from : "/usr/bin:/bin"; *name; from++) {
        size_t n = strcspn(from, ":");
        if (asprintf(path, "%.*s/%s", n ? (int)n : 1, n ? from : ".", name) < 0)
            return ERR_NO_MEMORY;
        if (runs(*path))
            return OK;
        free(take(path));
        from += n;
        if (!*from)
            break;
    }
    return fault_set(why, ERR_NOT_FOUND, "there is no program %s along PATH", name);
}
