/* PyTorch's rounding of requests and of segments. */
#include <inttypes.h>

#include "policies/pytorch_rounding.h"
#include "tests/policies_fixture.h"
#include "tests/test_main.h"

static uint64_t rounded(const char *divisions, uint64_t size) {
  pytorch_rounding rounding = {.large_segment = 20 * MIB};
  ck_assert_msg(pytorch_rounding_parse(&rounding, divisions), "%s is refused", divisions);
  return pytorch_round(&rounding, size);
}

START_TEST(rounds_requests) {
  static const struct {
    const char *divisions;
    uint64_t size, block;
  } vectors[] = {
      {"0", 1, 512},
      {"0", 511, 512},
      {"0", 512, 512},
      {"0", 513, 1024},
      {"0", 1048576, 1048576},
      {"0", 1048577, 1049088},
      {"0", 1572864, 1572864},
      {"0", 10485761, 10486272},
      {"1", 1049089, 1049600},
      /* Up to 512 times the divisions requests are rounded as ever. */
      {"8", 4096, 4096},
      {"8", 4097, 4608},
      {"8", 1000, 1024},
      {"4", 1200, 1536},
      {"4", 2049, 2560},
      {"4", 1500 * KIB, 1536 * KIB},
      {"4", 1200 * KIB, 1280 * KIB},
      {"4", 2 * MIB, 2 * MIB},
      {"4", 2 * MIB + 1, 2 * MIB + 512 * KIB},
      {"4", 3 * MIB, 3 * MIB},
      {"4", 3 * MIB + 1, 3 * MIB + 512 * KIB},
      {"8", 100 * MIB, 104 * MIB},
      {"2", 100 * MIB, 128 * MIB},
      {"16", 65 * GIB, 68 * GIB},
      /* By key, in MiB: the first holds below it too, '>' above the last. */
      {"[256:1,512:2,1024:4,>:8]", 100 * MIB + 1, 100 * MIB + 512},
      {"[256:1,512:2,1024:4,>:8]", 300 * MIB + 1, 300 * MIB + 512},
      {"[256:1,512:2,1024:4,>:8]", 513 * MIB, 768 * MIB},
      {"[256:1,512:2,1024:4,>:8]", 769 * MIB, 1024 * MIB},
      {"[256:1,512:2,1024:4,>:8]", 1025 * MIB, 1280 * MIB},
      {"[256:1,512:2,1024:4,>:8]", 2049 * MIB, 2304 * MIB},
      {"[256:1,512:2,1024:4,>:8]", 100 * GIB, 104 * GIB},
      {"[1:8]", 1000 * KIB, 1024 * KIB},
      {"[1:8]", 1025 * KIB, 1152 * KIB},
      {"[1:8]", 2049 * KIB, 2049 * KIB},
      {"[4:0,>:2]", 5 * MIB, 5 * MIB},
      {"[4:0,>:2]", 9 * MIB, 12 * MIB},
      {"[>:2]", 700 * KIB, 768 * KIB},
      {"[1048576:2]", 65 * GIB, 96 * GIB},
  };
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    uint64_t block = rounded(vectors[i].divisions, vectors[i].size);
    ck_assert_msg(block == vectors[i].block, "divisions %s: %" PRIu64 " becomes %" PRIu64 ", not %" PRIu64,
                  vectors[i].divisions, vectors[i].size, block, vectors[i].block);
  }
}
END_TEST

/* Whatever the divisions: not below the request, a multiple of 512, and no size is rounded twice. */
START_TEST(rounds_sanely) {
  uint64_t random = policies_random_seed("rounds_sanely");
  static const char *const divisions[] = {
      "0", "1", "2", "4", "8", "16", "64", "1024", "[256:1,512:2,1024:4,>:8]"};
  for (size_t d = 0; d < sizeof divisions / sizeof *divisions; d++) {
    pytorch_rounding rounding = {.large_segment = 20 * MIB};
    ck_assert(pytorch_rounding_parse(&rounding, divisions[d]));
    for (int i = 0; i < 100000; i++) {
      uint64_t size = 1 + (policies_random(&random) >> (4 + policies_random_below(&random, 60)));
      uint64_t block = pytorch_round(&rounding, size);
      require(block >= size && block % 512 == 0 && pytorch_round(&rounding, block) == block,
              "divisions %s: %" PRIu64 " becomes %" PRIu64, divisions[d], size, block);
      require(block - size < 512 || block - size <= size, "divisions %s: %" PRIu64 " becomes %" PRIu64,
              divisions[d], size, block);
    }
  }
}
END_TEST

START_TEST(refuses_divisions) {
  static const char *const bad[] = {
      "",
      "x",
      "3",
      "-1",
      "+4",
      " 4",
      "4 ",
      "1.0",
      "[",
      "[]",
      "[4]",
      "[:4]",
      "[4:]",
      "[4:3]",
      "[3:4]",
      "[0:4]",
      "[4:4",
      "[4:4]]",
      "[4:4,]",
      "[,4:4]",
      "[4:4 ]",
      "[ 4:4]",
      "[>:4,8:2]",
      "[4:4;8:2]",
      "[-4:4]",
      "[4:-4]",
      "[>]",
      "[>4]",
      "[2097152:4]",
      "4294967296",
      "99999999999999999999",
      "[99999999999999999999:1]",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    pytorch_rounding rounding = {0};
    ck_assert_msg(!pytorch_rounding_parse(&rounding, bad[i]), "\"%s\" is accepted", bad[i]);
  }
}
END_TEST

START_TEST(takes_segments_by_size) {
  pytorch_rounding rounding = {.large_segment = 20 * MIB};
  ck_assert_uint_eq(pytorch_segment_size(&rounding, 512), 2 * MIB);
  ck_assert_uint_eq(pytorch_segment_size(&rounding, MIB), 2 * MIB);
  ck_assert_uint_eq(pytorch_segment_size(&rounding, MIB + 512), 20 * MIB);
  ck_assert_uint_eq(pytorch_segment_size(&rounding, 10 * MIB - 512), 20 * MIB);
  ck_assert_uint_eq(pytorch_segment_size(&rounding, 10 * MIB), 10 * MIB);
  ck_assert_uint_eq(pytorch_segment_size(&rounding, 10 * MIB + 512), 12 * MIB);
  rounding.large_segment = 64 * MIB;
  ck_assert_uint_eq(pytorch_segment_size(&rounding, MIB + 512), 64 * MIB);
}
END_TEST

static Suite *rounding_suite(void) {
  Suite *suite = suite_create("policies_rounding");
  TCase *rounding = tcase_create("rounding");
  tcase_add_test(rounding, rounds_requests);
  tcase_add_test(rounding, rounds_sanely);
  tcase_add_test(rounding, refuses_divisions);
  tcase_add_test(rounding, takes_segments_by_size);
  suite_add_tcase(suite, rounding);
  return suite;
}

TEST_MAIN(rounding_suite)
