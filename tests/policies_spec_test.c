/* Policy specs: what is accepted, and what each refusal says; sizes; the registered policies. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/policies_fixture.h"
#include "tests/test_main.h"

/* ---- sizes ---- */

START_TEST(reads_sizes) {
  static const struct {
    const char *text;
    uint64_t bytes;
  } good[] = {
      {"0", 0},
      {"1", 1},
      {"4096", 4096},
      {"512B", 512},
      {"2MiB", 2 * MIB},
      {"2MB", 2 * MIB},
      {"2m", 2 * MIB},
      {"2 MiB", 2 * MIB},
      {"512KiB", 512 * KIB},
      {"512k", 512 * KIB},
      {"1GiB", GIB},
      {"1.5GiB", GIB + GIB / 2},
      {"0.25KiB", 256},
      {"1.0MiB", MIB},
      {"1TiB", 1024 * GIB},
      {"16777215TiB", UINT64_C(16777215) << 40},
      {"18446744073709551615", UINT64_MAX},
      {"unlimited", UINT64_MAX},
  };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    uint64_t bytes = 12345;
    ck_assert_msg(policy_parse_size(good[i].text, &bytes), "%s is refused", good[i].text);
    ck_assert_msg(bytes == good[i].bytes, "%s is %" PRIu64, good[i].text, bytes);
  }
}
END_TEST

START_TEST(refuses_what_is_no_size) {
  static const char *const bad[] = {
      "",
      " ",
      "10MBB",
      "-1",
      "-2MiB",
      "+5",
      "MiB",
      ".5MiB",
      "1.MiB",
      "1.5",
      "1.5B",
      "1..5M",
      "1e3",
      "1e3MiB",
      "1.5e3MiB",
      "0x10",
      "2MiB ",
      " 2MiB",
      "2 Mi B",
      "2Mib2",
      "2PiB",
      "nan",
      "inf",
      "1.inf",
      "Unlimited",
      "16777216TiB",
      "18446744073709551616",
      "99999999999999999999999999999999",
      "16777215.9999999999TiB1",
      "2,5MiB",
      "1.5.5MiB",
      "1.-5MiB",
      "1.+5MiB",
      "1. 5MiB",
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    uint64_t bytes;
    ck_assert_msg(!policy_parse_size(bad[i], &bytes), "\"%s\" is taken for a size of %" PRIu64, bad[i],
                  bytes);
  }
}
END_TEST

/* ---- specs ---- */

START_TEST(fills_in_defaults_and_values) {
  policy_spec spec;
  char message[512];
  ck_assert_int_eq(policy_spec_parse("gmlake", &spec, message, sizeof message), VMM_SUCCESS);
  ck_assert_str_eq(spec.class->name, "gmlake");
  ck_assert_str_eq(spec.text, "gmlake");
  ck_assert_str_eq(spec.class->options[0].name, "chunk");
  ck_assert_uint_eq(spec.values[0].integer, 2 * MIB);
  ck_assert_int_eq(policy_spec_parse("gmlake:stitch_count=7,chunk=4MiB", &spec, message, sizeof message),
                   VMM_SUCCESS);
  ck_assert_uint_eq(spec.values[0].integer, 4 * MIB);
  ck_assert_str_eq(spec.values[0].text, "4MiB");
  for (int i = 0; spec.class->options[i].name; i++) {
    if (strcmp(spec.class->options[i].name, "stitch_count") == 0)
      ck_assert_uint_eq(spec.values[i].integer, 7);
  }
  ck_assert_int_eq(policy_spec_parse("bfc:max_split_size_mb=unlimited,garbage_collection_threshold=0.8",
                                     &spec, message, sizeof message),
                   VMM_SUCCESS);
  ck_assert_uint_eq(spec.values[0].integer, UINT64_MAX);
  ck_assert_double_eq(spec.values[2].real, 0.8);
}
END_TEST

/* A comma inside brackets does not end a value. */
START_TEST(keeps_lists_together) {
  policy_spec spec;
  char message[512];
  ck_assert_int_eq(policy_spec_parse("bfc:roundup_power2_divisions=[256:1,512:2,>:8],max_split_size_mb=64",
                                     &spec, message, sizeof message),
                   VMM_SUCCESS);
  ck_assert_str_eq(spec.values[1].text, "[256:1,512:2,>:8]");
  ck_assert_uint_eq(spec.values[0].integer, 64);
  ck_assert_int_eq(policy_spec_parse("bfc:max_split_size_mb=64,roundup_power2_divisions=[256:1,512:2", &spec,
                                     message, sizeof message),
                   VMM_SUCCESS);
  ck_assert_str_eq(spec.values[1].text, "[256:1,512:2");
}
END_TEST

static const struct {
  const char *spec;
  const char *says[4]; /* all of them in the message */
} refusals[] = {
    {"", {"there is no policy ''", "native", "bfc", "gmlake"}},
    {"gmlke", {"there is no policy 'gmlke'", "did you mean gmlake?"}},
    {"BFC", {"there is no policy 'BFC'", "native, async, bfc"}},
    {"gmlake ", {"there is no policy 'gmlake '", "did you mean gmlake?"}},
    {"zzzzzzzzzzzz", {"there is no policy 'zzzzzzzzzzzz'"}},
    {"gmlake:", {"policy gmlake: an option is expected after ':'"}},
    {"gmlake:fraglimit=2MiB",
     {"policy gmlake has no option 'fraglimit'", "chunk", "did you mean frag_limit?"}},
    {"bfc:expandeable_segments=True",
     {"policy bfc has no option 'expandeable_segments'", "max_split_size_mb"}},
    {"native:chunk=2MiB", {"policy native has no option 'chunk'", "none at all"}},
    {"gmlake:chunk", {"policy gmlake: 'chunk' lacks its value", "chunk=VALUE"}},
    {"gmlake:=2MiB", {"policy gmlake has no option ''"}},
    {"gmlake:chunk=2MiB,", {"policy gmlake has no option ''"}},
    {"gmlake:,chunk=2MiB", {"policy gmlake has no option ''"}},
    {"gmlake:chunk=2MiB,chunk=2MiB", {"policy gmlake: chunk is given twice"}},
    {"gmlake:chunk=", {"policy gmlake: chunk=: expected a size"}},
    {"gmlake:chunk=10MBB", {"policy gmlake: chunk=10MBB: expected a size such as 2MiB"}},
    {"gmlake:chunk=-2MiB", {"policy gmlake: chunk=-2MiB: expected a size"}},
    {"gmlake:chunk=0", {"policy gmlake: chunk=0 is out of range", "granularity"}},
    {"gmlake:chunk=unlimited", {"policy gmlake: chunk=unlimited is out of range"}},
    {"gmlake:chunk=2 PiB", {"policy gmlake: chunk=2 PiB: expected a size"}},
    {"gmlake:stitch_count=-1", {"policy gmlake: stitch_count=-1: expected a whole number"}},
    {"gmlake:stitch_count=1.5", {"expected a whole number or unlimited"}},
    {"gmlake:stitch_count=1k", {"expected a whole number"}},
    {"gmlake:stitch_count=99999999999999999999", {"expected a whole number"}},
    {"bfc:max_split_size_mb=19", {"policy bfc: max_split_size_mb=19 is out of range: 20 to", "MiB"}},
    {"bfc:large_segment_size_mb=unlimited", {"large_segment_size_mb=unlimited is out of range: 11 to"}},
    {"bfc:garbage_collection_threshold=1", {"garbage_collection_threshold=1 is out of range: 0 to"}},
    {"bfc:garbage_collection_threshold=-0.1", {"garbage_collection_threshold=-0.1 is out of range"}},
    {"bfc:garbage_collection_threshold=nan", {"garbage_collection_threshold=nan: expected a number"}},
    {"bfc:garbage_collection_threshold=1e999", {"expected a number"}},
    {"bfc:garbage_collection_threshold=0.5x", {"expected a number"}},
    {"bfc:garbage_collection_threshold=", {"expected a number"}},
    {"expandable:oversize_rule=on", {"policy expandable: oversize_rule=on: expected off|pytorch"}},
    {"expandable:oversize_rule=off|pytorch", {"expected off|pytorch"}},
    {"expandable:oversize_rule=", {"expected off|pytorch"}},
    {"tfbfc:allow_growth=maybe", {"policy tfbfc: allow_growth=maybe: expected true or false"}},
};

START_TEST(says_what_is_wrong) {
  policy_spec spec;
  char message[512] = "";
  ck_assert_msg(policy_spec_parse(refusals[_i].spec, &spec, message, sizeof message) == VMM_INVALID_VALUE,
                "\"%s\" is accepted", refusals[_i].spec);
  for (int i = 0; i < 4 && refusals[_i].says[i]; i++) {
    ck_assert_msg(strstr(message, refusals[_i].says[i]) != NULL, "\"%s\": \"%s\" lacks \"%s\"",
                  refusals[_i].spec, message, refusals[_i].says[i]);
  }
  ck_assert_msg(message[strlen(message) - 1] != '\n', "a newline ends the message");
  /* However little room there is, the message ends. */
  char small[8] = "xxxxxxx";
  ck_assert_int_eq(policy_spec_parse(refusals[_i].spec, &spec, small, sizeof small), VMM_INVALID_VALUE);
  ck_assert_uint_lt(strnlen(small, sizeof small), sizeof small);
}
END_TEST

START_TEST(refuses_what_is_too_long) {
  policy_spec spec;
  char message[512], text[4096];
  memset(text, 'x', sizeof text);
  text[sizeof text - 1] = '\0';
  ck_assert_int_eq(policy_spec_parse(text, &spec, message, sizeof message), VMM_INVALID_VALUE);
  ck_assert_msg(strstr(message, "at most 255 characters") != NULL, "%s", message);
  text[255] = '\0';
  ck_assert_int_eq(policy_spec_parse(text, &spec, message, sizeof message), VMM_INVALID_VALUE);
  memcpy(text, "gmlake:", 7);
  ck_assert_int_eq(policy_spec_parse(text, &spec, message, sizeof message), VMM_INVALID_VALUE);
  ck_assert_msg(strstr(message, "policy gmlake has no option") != NULL, "%s", message);
  memcpy(text, "gmlake:chunk=", 13);
  ck_assert_int_eq(policy_spec_parse(text, &spec, message, sizeof message), VMM_INVALID_VALUE);
  ck_assert_msg(strstr(message, "the value of chunk is longer than 127 characters") != NULL, "%s", message);
}
END_TEST

START_TEST(accepts_booleans_and_choices) {
  policy_spec spec;
  char message[512];
  static const struct {
    const char *spec;
    int option;
    uint64_t value;
  } good[] = {
      {"tfbfc:allow_growth=true", 0, 1},      {"tfbfc:allow_growth=false", 0, 0},
      {"tfbfc:allow_growth=1", 0, 1},         {"tfbfc:allow_growth=0", 0, 0},
      {"tfbfc:allow_growth=on", 0, 1},        {"tfbfc:allow_growth=OFF", 0, 0},
      {"tfbfc:allow_growth=Yes", 0, 1},       {"tfbfc:allow_growth=no", 0, 0},
      {"expandable:oversize_rule=off", 1, 0}, {"expandable:oversize_rule=pytorch", 1, 1},
  };
  for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
    ck_assert_msg(policy_spec_parse(good[i].spec, &spec, message, sizeof message) == VMM_SUCCESS, "%s",
                  message);
    ck_assert_msg(spec.values[good[i].option].integer == good[i].value, "%s", good[i].spec);
  }
}
END_TEST

START_TEST(finds_the_nearest_word) {
  static const char *const words[] = {"native", "bfc", "gmlake", "rawvmm", NULL};
  ck_assert_str_eq(policy_nearest_word("gmlak", words), "gmlake");
  ck_assert_str_eq(policy_nearest_word("natve", words), "native");
  ck_assert_str_eq(policy_nearest_word("bcf", words), "bfc");
  ck_assert_ptr_null(policy_nearest_word("something", words));
  ck_assert_ptr_null(policy_nearest_word("gmlake", (const char *const[]){NULL}));
}
END_TEST

/* ---- combinations that only the policy can refuse ---- */

START_TEST(refuses_combinations) {
  static const struct {
    const char *spec;
    const char *says;
  } bad[] = {
      {"bfc:max_split_size_mb=20,large_segment_size_mb=64",
       "max_split_size_mb=20 must not be below large_segment_size_mb=64"},
      {"bfc:roundup_power2_divisions=3", "roundup_power2_divisions=3: expected a power of two"},
      {"bfc:roundup_power2_divisions=", "roundup_power2_divisions=: expected a power of two"},
      {"bfc:roundup_power2_divisions=[256:1", "roundup_power2_divisions=[256:1: expected a power of two"},
      {"gmlake:chunk=3MiB", "chunk=3MiB is no multiple of the device's granularity of 2097152 bytes"},
      {"rawvmm:chunk=1MiB", "chunk=1MiB is no multiple of the device's granularity of 2097152 bytes"},
  };
  vmm_sim_configuration configuration = {.capacity = 64 * MIB};
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    policy_spec spec;
    policy *created = (policy *)sim;
    char message[512] = "";
    ck_assert_int_eq(policy_spec_parse(bad[i].spec, &spec, message, sizeof message), VMM_SUCCESS);
    ck_assert_int_eq(policy_create(&spec, sim, UINT64_MAX, &created, message, sizeof message),
                     VMM_INVALID_VALUE);
    ck_assert_ptr_null(created);
    ck_assert_msg(strstr(message, bad[i].says) != NULL, "\"%s\" lacks \"%s\"", message, bad[i].says);
  }
  vmm_driver_destroy(sim);
}
END_TEST

START_TEST(refuses_other_interfaces) {
  vmm_sim_configuration configuration = {.capacity = 64 * MIB};
  vmm_driver *sim;
  ck_assert_int_eq(vmm_sim_create(&configuration, &sim), VMM_SUCCESS);
  for (int broken = 0; broken < 7; broken++) {
    policy_class other = *policy_find("native");
    if (broken == 0) other.magic = 1852400239;
    if (broken == 1) other.abi = POLICY_ABI + 1;
    if (broken == 2) other.size--;
    if (broken == 3) other.create = NULL;
    if (broken == 4) other.destroy = NULL;
    if (broken == 5) other.alloc = NULL;
    if (broken == 6) other.free = NULL;
    policy_spec spec = {.class = &other};
    policy *created;
    char message[512];
    ck_assert_int_eq(policy_create(&spec, sim, UINT64_MAX, &created, message, sizeof message),
                     VMM_INVALID_VALUE);
    ck_assert_ptr_null(created);
    if (broken == 1) {
      char other_number[64], own_number[64];
      snprintf(other_number, sizeof other_number, "interface %u", POLICY_ABI + 1);
      snprintf(own_number, sizeof own_number, "has %u", POLICY_ABI);
      ck_assert_msg(strstr(message, other_number) && strstr(message, own_number), "%s", message);
    }
  }
  vmm_driver_destroy(sim);
}
END_TEST

/* ---- the registered policies ---- */

START_TEST(every_policy_is_well_formed) {
  const policy_class *const *list = policy_list();
  for (size_t i = 0; list[i]; i++) {
    const policy_class *class = list[i];
    ck_assert(class->magic == POLICY_MAGIC && class->abi == POLICY_ABI && class->size == sizeof *class);
    ck_assert(class->create && class->destroy && class->alloc && class->free);
    ck_assert_ptr_eq(policy_find(class->name), class);
    ck_assert_msg(class->summary && strlen(class->summary) > 10 && !strchr(class->summary, '\n'), "%s",
                  class->name);
    ck_assert_uint_eq(strspn(class->name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(class->name));
    for (size_t k = 0; k < i; k++) ck_assert_str_ne(list[k]->name, class->name);
    size_t count = 0;
    for (const policy_option *option = class->options; option && option->name; option++, count++) {
      ck_assert_uint_eq(strspn(option->name, "abcdefghijklmnopqrstuvwxyz0123456789_"), strlen(option->name));
      ck_assert_msg(option->help && strlen(option->help) > 10, "%s:%s has no help", class->name,
                    option->name);
      ck_assert_msg(option->default_value && strlen(option->default_value) < 128, "%s:%s", class->name,
                    option->name);
      ck_assert_msg(option->minimum <= option->maximum, "%s:%s", class->name, option->name);
      ck_assert_int_eq(option->type == POLICY_OPTION_CHOICE, option->choices != NULL);
      for (const policy_option *other = class->options; other != option; other++) {
        ck_assert_str_ne(other->name, option->name);
      }
      /* Its default, written out, is a spec of its own. */
      char text[256], message[512] = "";
      policy_spec spec;
      snprintf(text, sizeof text, "%s:%s=%s", class->name, option->name, option->default_value);
      ck_assert_msg(policy_spec_parse(text, &spec, message, sizeof message) == VMM_SUCCESS, "%s", message);
    }
    ck_assert_uint_le(count, POLICY_OPTIONS_LIMIT);
  }
  ck_assert_ptr_null(policy_find("nothing"));
}
END_TEST

/* With its defaults each can be made, unless it needs to know the trace. */
START_TEST(every_policy_can_be_made) {
  for (const policy_class *const *class = policy_list(); *class; class ++) {
    if ((*class)->capabilities & POLICY_NEEDS_LIFETIMES) continue;
    policies_fixture fixture;
    policies_fixture_open(&fixture, &(policies_fixture_options){.spec = (*class)->name});
    ck_assert_ptr_eq(fixture.policy->class, *class);
    policies_fixture_check(&fixture, (*class)->name);
    policy_counter counters[64];
    size_t count = policy_counters(fixture.policy, counters, 64);
    ck_assert_uint_le(count, 64);
    for (size_t i = 0; i < count; i++) {
      ck_assert_uint_eq(strspn(counters[i].name, "abcdefghijklmnopqrstuvwxyz0123456789_"),
                        strlen(counters[i].name));
    }
    policy_counter one[2] = {{"untouched", 77}, {"untouched", 77}};
    ck_assert_uint_eq(policy_counters(fixture.policy, one, count > 0 ? 1 : 0), count);
    ck_assert_str_eq(one[1].name, "untouched");
    ck_assert_uint_eq(policy_largest_free(fixture.policy), 0);
    policies_fixture_close(&fixture);
  }
}
END_TEST

static Suite *spec_suite(void) {
  Suite *suite = suite_create("policies_spec");
  TCase *sizes = tcase_create("sizes");
  tcase_add_test(sizes, reads_sizes);
  tcase_add_test(sizes, refuses_what_is_no_size);
  suite_add_tcase(suite, sizes);
  TCase *specs = tcase_create("specs");
  tcase_add_test(specs, fills_in_defaults_and_values);
  tcase_add_test(specs, keeps_lists_together);
  tcase_add_loop_test(specs, says_what_is_wrong, 0, (int)(sizeof refusals / sizeof *refusals));
  tcase_add_test(specs, refuses_what_is_too_long);
  tcase_add_test(specs, accepts_booleans_and_choices);
  tcase_add_test(specs, finds_the_nearest_word);
  tcase_add_test(specs, refuses_combinations);
  tcase_add_test(specs, refuses_other_interfaces);
  suite_add_tcase(suite, specs);
  TCase *registered = tcase_create("registered");
  tcase_add_test(registered, every_policy_is_well_formed);
  tcase_add_test(registered, every_policy_can_be_made);
  suite_add_tcase(suite, registered);
  return suite;
}

TEST_MAIN(spec_suite)
