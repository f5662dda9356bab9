/* The page without results: harness/report/ and its chart code in one text, which has a mark in place of
 * them. */
#ifndef LAKEBED_HARNESS_REPORT_PAGE_H
#define LAKEBED_HARNESS_REPORT_PAGE_H

/* Ends with a zero byte. */
extern const unsigned char report_page_text[];

#endif
