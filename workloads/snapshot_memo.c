#include <stdlib.h>
#include <string.h>

#include "workloads/snapshot.h"

static uint8_t *page_for_writing(snapshot_memo *memo, uint64_t page) {
  if (page >= memo->page_count) {
    size_t count = memo->page_count == 0 ? 16 : memo->page_count;
    while (count <= page) count *= 2;
    uint8_t **pages = realloc(memo->pages, count * sizeof *pages);
    if (pages == NULL) return NULL;
    memset(pages + memo->page_count, 0, (count - memo->page_count) * sizeof *pages);
    memo->pages = pages;
    memo->page_count = count;
  }
  if (memo->pages[page] == NULL) memo->pages[page] = calloc(1, SNAPSHOT_MEMO_PAGE);
  return memo->pages[page];
}

bool snapshot_memo_put(snapshot_memo *memo, uint64_t index, snapshot_word word) {
  uint64_t page = index >> SNAPSHOT_MEMO_PAGE_BITS;
  uint64_t place = index & (SNAPSHOT_MEMO_PAGE - 1);
  if (word != WORD_NONE) {
    uint8_t *words = page_for_writing(memo, page);
    if (words == NULL) return false;
    words[place] = (uint8_t)word;
  } else if (index < memo->count && page < memo->page_count && memo->pages[page] != NULL) {
    memo->pages[page][place] = WORD_NONE;
  }
  if (index >= memo->count) memo->count = index + 1;
  return true;
}

void snapshot_memo_clear(snapshot_memo *memo) {
  for (size_t i = 0; i < memo->page_count; i++) free(memo->pages[i]);
  free(memo->pages);
  memset(memo, 0, sizeof *memo);
}
