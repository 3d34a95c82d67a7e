/* id.c - what a key is called: in a store, for people; and what a body is recognised by. Pure. */
#define OPENSSL_SUPPRESS_DEPRECATED /* see key_id */
#include "once/key.h"

#include <openssl/sha.h>
#include <stdio.h>

/* With the functions that OpenSSL 3 calls old: the new ones look their algorithm up and allocate
 * for each hash, which took half the time of a whole message on the memory store. */
void key_id(struct bytes scope, struct bytes key, uint8_t id[32])
{
    uint8_t size[8];
    SHA256_CTX digest;
    store_u64(size, scope.len);
    bool ok = SHA256_Init(&digest) && SHA256_Update(&digest, size, sizeof size) &&
              SHA256_Update(&digest, scope.at, scope.len) &&
              SHA256_Update(&digest, key.at, key.len) && SHA256_Final(id, &digest);
    invariant(ok);
}

void key_name(struct bytes key, char *out, size_t size)
{
    size_t n = 0;
    for (size_t i = 0; i < key.len; i++) {
        bool plain = key.at[i] >= 0x20 && key.at[i] < 0x7f && key.at[i] != '\\';
        if (n + (plain ? 1 : 4) >= size)
            break;
        if (plain)
            out[n++] = (char)key.at[i];
        else
            n += (size_t)snprintf(out + n, size - n, "\\x%02x", key.at[i]);
    }
    out[n] = 0;
}

uint64_t key_fingerprint(const void *body, size_t size)
{
    uint8_t id[32];
    key_id((struct bytes){0}, bytes_of(body, size), id);
    uint64_t print = load_u64(id);
    return print ? print : 1;
}
