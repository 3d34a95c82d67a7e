/* reserve.h - memory that grows in place.
 *
 * Address space for the most that may ever be needed is taken at once, memory comes with the first
 * touch of each page and is given back by the page. So a large array grows and shrinks without
 * being copied, and never moves.
 *
 * Where such an array is read here and there, the processor spends longer on finding the page than
 * on the memory itself. reserve_firm() has the kernel put large pages in the place of many small
 * ones, where those are in use anyway, so that it takes no more memory.
 */
#ifndef BASE_RESERVE_H
#define BASE_RESERVE_H

#include <stddef.h>

#define RESERVE_UNIT ((size_t)2 << 20) /* a large page; reservations begin at such a border */

/* Zeroes, `most` bytes of them; NULL: there is no such space. */
void *reserve_open(size_t most);
/* Gives back the whole pages from `from` up to `to`; they are zeroes again. */
void reserve_trim(void *at, size_t from, size_t to);
/* Makes whole units from `from` up to `to` large pages, if the kernel can; it may take a while, in
 * which others may use the memory. Both are multiples of RESERVE_UNIT. */
void reserve_firm(void *at, size_t from, size_t to);
void reserve_close(void *at, size_t most);

#endif
