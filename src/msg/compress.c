/* compress.c - bodies made small, and large again.
 *
 * All three libraries are used on whole bodies. To expand, room is guessed from the size of the
 * input; when it is too small the next try has four times as much, up to the ceiling, so the work
 * is at most a third more than the last try alone. zlib and zstd then write straight into the
 * result, without a window of their own that a frame's header could ask to be huge; lz4 may keep
 * one block beside it, of 4 MiB at most.
 *
 * What Java accepts is accepted: several frames of lz4 or zstd in a row, bytes behind the end of a
 * zlib stream.
 */
#include "msg/msg.h"

#include <libdeflate.h>
#include <lz4frame.h>
#include <zstd.h>
#include <zstd_errors.h>

#define ROOM_GUESS 8 /* times the input */
#define ROOM_LEAST 1024
#define ROOM_MORE  4

#define ZLIB_LEVEL_MAX 9

void compressor_clear(struct compressor *c)
{
    libdeflate_free_compressor(c->deflate);
    libdeflate_free_decompressor(c->inflate);
    (void)ZSTD_freeCCtx(c->zstd_in);
    (void)ZSTD_freeDCtx(c->zstd_out);
    (void)LZ4F_freeDecompressionContext(c->lz4_out);
    *c = (struct compressor){0};
}

int32_t compression_flags(enum compression how)
{
    static const int32_t types[] = {
        [COMPRESS_ZLIB] = SYS_TYPE_ZLIB,
        [COMPRESS_LZ4] = SYS_TYPE_LZ4,
        [COMPRESS_ZSTD] = SYS_TYPE_ZSTD,
    };
    return SYS_COMPRESSED | types[how];
}

/* ---- making small ---- */

static int within(int value, int least, int most)
{
    return value < least ? least : value > most ? most : value;
}

static enum err deflate_into(struct compressor *c, int level, struct bytes plain, struct buf *out)
{
    level = within(level, 1, ZLIB_LEVEL_MAX);
    if (c->deflate && c->deflate_level != level) {
        libdeflate_free_compressor(c->deflate);
        c->deflate = NULL;
    }
    if (!c->deflate)
        c->deflate = libdeflate_alloc_compressor(level);
    if (!c->deflate)
        return ERR_NO_MEMORY;
    c->deflate_level = level;

    size_t room = libdeflate_zlib_compress_bound(c->deflate, plain.len);
    uint8_t *to = buf_space(out, room);
    if (!to)
        return out->err;
    size_t made = libdeflate_zlib_compress(c->deflate, plain.at, plain.len, to, room);
    invariant(made > 0); /* 0 would mean that the bound was none */
    out->len -= room - made;
    return OK;
}

static enum err zstd_into(struct compressor *c, int level, struct bytes plain, struct buf *out)
{
    if (!c->zstd_in)
        c->zstd_in = ZSTD_createCCtx();
    if (!c->zstd_in)
        return ERR_NO_MEMORY;

    size_t room = ZSTD_compressBound(plain.len);
    uint8_t *to = buf_space(out, room);
    if (!to)
        return out->err;
    size_t made = ZSTD_compressCCtx(c->zstd_in, to, room, plain.at, plain.len,
                                    within(level, 1, ZSTD_maxCLevel()));
    if (ZSTD_isError(made))
        return ERR_NO_MEMORY; /* there is room and the level exists: nothing else can fail */
    out->len -= room - made;
    return OK;
}

static enum err lz4_into(struct bytes plain, struct buf *out)
{
    const LZ4F_preferences_t java = {
        .frameInfo = {.blockMode = LZ4F_blockIndependent, .blockSizeID = LZ4F_max4MB},
    };
    size_t room = LZ4F_compressFrameBound(plain.len, &java);
    uint8_t *to = buf_space(out, room);
    if (!to)
        return out->err;
    size_t made = LZ4F_compressFrame(to, room, plain.at, plain.len, &java);
    if (LZ4F_isError(made))
        return ERR_NO_MEMORY;
    out->len -= room - made;
    return OK;
}

enum err body_compress(struct compressor *c, enum compression how, int level, struct bytes plain,
                       struct buf *out)
{
    size_t had = out->len;
    enum err err = how == COMPRESS_ZLIB   ? deflate_into(c, level, plain, out)
                   : how == COMPRESS_ZSTD ? zstd_into(c, level, plain, out)
                                          : lz4_into(plain, out);
    if (err)
        out->len = had;
    return err;
}

/* ---- making large again: ERR_RANGE when the room was too small ---- */

static enum err inflate_try(struct compressor *c, struct bytes in, uint8_t *to, size_t room,
                            size_t *made)
{
    if (!c->inflate)
        c->inflate = libdeflate_alloc_decompressor();
    if (!c->inflate)
        return ERR_NO_MEMORY;
    size_t eaten;
    switch (libdeflate_zlib_decompress_ex(c->inflate, in.at, in.len, to, room, &eaten, made)) {
    case LIBDEFLATE_SUCCESS:
        return OK;
    case LIBDEFLATE_INSUFFICIENT_SPACE:
        return ERR_RANGE;
    default:
        return ERR_MALFORMED;
    }
}

static enum err zstd_try(struct compressor *c, struct bytes in, uint8_t *to, size_t room,
                         size_t *made)
{
    if (!c->zstd_out)
        c->zstd_out = ZSTD_createDCtx();
    if (!c->zstd_out)
        return ERR_NO_MEMORY;
    size_t n = ZSTD_decompressDCtx(c->zstd_out, to, room, in.at, in.len);
    if (!ZSTD_isError(n)) {
        *made = n;
        return OK;
    }
    switch (ZSTD_getErrorCode(n)) {
    case ZSTD_error_dstSize_tooSmall:
        return ERR_RANGE;
    case ZSTD_error_memory_allocation:
        return ERR_NO_MEMORY;
    default:
        return ERR_MALFORMED;
    }
}

static enum err lz4_try(struct compressor *c, struct bytes in, uint8_t *to, size_t room,
                        size_t *made)
{
    if (!c->lz4_out &&
        LZ4F_isError(LZ4F_createDecompressionContext((LZ4F_dctx **)&c->lz4_out, LZ4F_VERSION)))
        return ERR_NO_MEMORY;
    LZ4F_resetDecompressionContext(c->lz4_out);

    size_t done = 0, wanted = 1;
    while (in.len > 0) {
        size_t step = room - done, eaten = in.len;
        wanted = LZ4F_decompress(c->lz4_out, to + done, &step, in.at, &eaten, NULL);
        if (LZ4F_isError(wanted))
            return ERR_MALFORMED;
        done += step;
        in = bytes_from(in, eaten);
        if (eaten == 0 && step == 0)
            return done == room ? ERR_RANGE : ERR_MALFORMED;
    }
    if (wanted > 0) /* the frame goes on: cut off, or something waits that had no room */
        return done == room ? ERR_RANGE : ERR_MALFORMED;
    *made = done;
    return OK;
}

typedef enum err expand_try(struct compressor *c, struct bytes in, uint8_t *to, size_t room,
                            size_t *made);

static expand_try *try_for(int32_t sys_flag)
{
    switch (sys_flag & SYS_TYPE_MASK) {
    case 0:
    case SYS_TYPE_ZLIB:
        return inflate_try;
    case SYS_TYPE_LZ4:
        return lz4_try;
    case SYS_TYPE_ZSTD:
        return zstd_try;
    default:
        return NULL;
    }
}

enum err body_expand(struct compressor *c, int32_t sys_flag, struct bytes packed, struct buf *out)
{
    expand_try *try = try_for(sys_flag);
    if (!try)
        return ERR_UNSUPPORTED;
    if (packed.len == 0)
        return ERR_MALFORMED;

    size_t had = out->len, most = out->max - had;
    if (most == 0)
        return ERR_TOO_BIG;
    size_t room = packed.len < most / ROOM_GUESS ? packed.len * ROOM_GUESS : most;
    if (room < ROOM_LEAST)
        room = most < ROOM_LEAST ? most : ROOM_LEAST;
    for (;;) {
        uint8_t *to = buf_space(out, room);
        if (!to) {
            out->len = had;
            return out->err;
        }
        size_t made = 0;
        enum err err = try(c, packed, to, room, &made);
        out->len = err ? had : had + made;
        if (err != ERR_RANGE)
            return err;
        if (room == most)
            return ERR_TOO_BIG;
        room = room < most / ROOM_MORE ? room * ROOM_MORE : most;
    }
}
