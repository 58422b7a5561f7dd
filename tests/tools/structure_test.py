"""Tests structure.py on small trees with known measurements."""
import json
import pathlib
import subprocess
import sys

import pytest

import structure

SCRIPT = pathlib.Path(__file__).with_name('structure.py')

# A tree without violations.
CLEAN = {
    'profiler/trace/include/stepscope/trace.h': 'struct Trace {};\n',
    'profiler/trace/trace.cc': '#include <stepscope/trace.h>\n',
    'analysis/steps/steps.h': '#include <stepscope/trace.h>\n',
    'analysis/steps/steps.cc': '#include "steps.h"\n\n#include <vector>\n',
    'analysis/rules/sync.cc': '#include "steps/steps.h"\n',
    'tests/analysis/steps_test.cc': '#include "analysis/steps/steps.h"\n#include <gtest/gtest.h>\n',
}


def make_tree(root, files):
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    subprocess.run(['git', 'init', '-q', root], check=True)
    subprocess.run(['git', '-C', root, 'add', '-A'], check=True)
    return root


def run(root, *arguments):
    """Returns the exit status and the output."""
    done = subprocess.run([sys.executable, SCRIPT, '--root', root, *arguments], stdout=subprocess.PIPE, text=True)
    return done.returncode, done.stdout


def check(root, files):
    return run(make_tree(root, files), '--check')


def lengths_of(code):
    """Returns [(name, lines)] of the functions found in `code`."""
    return [(name, lines) for lines, name, _, _ in structure.functions(structure.Source('a/b.cc', code))]


def test_a_clean_tree_passes(tmp_path):
    assert check(tmp_path, CLEAN) == (0, 'structure: no violation\n')


def test_a_mutual_folder_edge_is_found(tmp_path):
    status, text = check(tmp_path, CLEAN | {
        'analysis/replay/cpu/graph.h': '#include "gpu/program.h"\n',
        'analysis/replay/gpu/program.h': '',
        'analysis/replay/gpu/idle.cc': '  #  include "../cpu/graph.h"\n'})
    assert status == 1
    assert text == ('mutual folder edge: analysis/replay/cpu <-> analysis/replay/gpu (analysis/replay/cpu/graph.h '
                    'includes gpu/program.h; analysis/replay/gpu/idle.cc includes ../cpu/graph.h)\n')


def test_a_folder_and_its_public_headers_are_one_folder(tmp_path):
    # As two folders, these would include each other.
    tree = make_tree(tmp_path, {'analysis/include/stepscope/a.h': '#include "b.h"\n',
                                'analysis/b.h': '',
                                'analysis/c.cc': '#include <stepscope/a.h>\n'})
    measured = json.loads(run(tree, '--json')[1])
    assert measured['folder edges'] == []
    assert measured['violations']['mutual folder edge'] == []


def test_a_loop_of_headers_is_found(tmp_path):
    status, text = check(tmp_path, CLEAN | {
        'analysis/steps/a.h': '#include "b.h"\n',
        'analysis/steps/b.h': '#include "c.h"\n',
        'analysis/steps/c.h': '#include "a.h"\n'})
    assert status == 1
    assert text.startswith('file loop: analysis/steps/a.h, analysis/steps/b.h, analysis/steps/c.h (a.h includes b.h')
    assert text.count('\n') == 1


def test_a_loop_through_a_source_is_found(tmp_path):
    status, text = check(tmp_path, CLEAN | {
        'analysis/steps/steps.cc': '#include "steps.h"\n#include "tiling.h"\n',
        'analysis/steps/tiling.h': '#include "steps.h"\n'})
    assert (status, text) == (1, 'file loop: analysis/steps/steps.h, analysis/steps/tiling.h '
                                 '(steps.cc includes tiling.h; tiling.h includes steps.h)\n')


def test_a_chain_and_a_diamond_are_no_loop(tmp_path):
    assert check(tmp_path, CLEAN | {
        'analysis/steps/a.h': '#include "b.h"\n#include "c.h"\n',
        'analysis/steps/b.h': '#include "d.h"\n',
        'analysis/steps/c.h': '#include "d.h"\n',
        'analysis/steps/d.h': '// #include "a.h"\n/*\n#include "a.h"\n*/\n'})[0] == 0


@pytest.mark.parametrize('source, target', [
    ('profiler/trace', 'profiler/session'),
    ('profiler/session', 'collectors'),
    ('collectors/torch', 'collectors/allocator'),
    ('collectors/torch', 'collectors'),
    ('collectors/torch', 'analysis/steps'),
    ('analysis/steps', 'analysis/ranks'),
    ('analysis/ops', 'analysis/words'),
    ('analysis/timeline', 'analysis/engine'),
    ('analysis/evidence', 'analysis/report'),
    ('analysis/replay/cpu', 'analysis/rules'),
    ('analysis/rules', 'analysis/engine'),
    ('analysis/report', 'analysis/rules'),
    ('analysis/rules', 'exporters'),
    ('exporters/io', 'exporters/rows'),
    ('exporters/chrome/reader', 'exporters/xspace/reader'),
    ('exporters', 'analysis/report'),
    ('profiler/profile', 'tests/support'),
    ('analysis', 'plugins/cli'),
])
def test_a_forbidden_edge_is_found(tmp_path, source, target):
    status, text = check(tmp_path, {f'{source}/x.cc': f'#include "{target}/y.h"\n', f'{target}/y.h': ''})
    assert (status, text) == (1, f'forbidden folder edge: {source} must not include {target} '
                                 f'({source}/x.cc includes {target}/y.h; 1 in all)\n')


@pytest.mark.parametrize('source, target', [
    ('profiler/profile', 'collectors'),
    ('collectors', 'collectors/torch'),
    ('collectors/torch', 'profiler/session'),
    ('analysis/replay/cpu', 'analysis/replay'),
    ('analysis/replay/cpu', 'analysis/steps'),
    ('analysis/engine', 'analysis/rules'),
    ('analysis/report', 'analysis'),
    ('exporters/chrome/writer', 'exporters/rows'),
    ('exporters/files', 'exporters/chrome/reader'),
    ('plugins/cli', 'analysis/report'),
    ('tests/analysis', 'plugins/cli'),
])
def test_an_allowed_edge_passes(tmp_path, source, target):
    assert check(tmp_path, {f'{source}/x.cc': f'#include "{target}/y.h"\n', f'{target}/y.h': ''})[0] == 0


def test_a_report_may_see_only_the_public_headers_of_the_engine(tmp_path):
    public = {'analysis/engine/include/stepscope/plan.h': '', 'analysis/engine/sizing.h': '',
              'analysis/report/text.cc': '#include <stepscope/plan.h>\n'}
    assert check(tmp_path, public)[0] == 0
    status, text = check(tmp_path, public | {'analysis/report/text.cc': '#include "engine/sizing.h"\n'})
    assert status == 1
    assert 'analysis/report must not include analysis/engine' in text


def test_a_line_of_allowed_can_stand_for_one_file(tmp_path, monkeypatch):
    files = {'a/core.cc': '#include "b/b.h"\n', 'a/defaults.cc': '#include "b/b.h"\n', 'b/b.h': ''}
    monkeypatch.setattr(structure, 'ALLOWED', {'a': [], 'a/defaults.h': ['b'], 'b': []})
    forbidden = structure.measure(files)['violations']['forbidden folder edge']
    assert forbidden == ['a must not include b (a/core.cc includes b/b.h; 1 in all)']


def test_a_folder_that_allowed_does_not_know_is_found(tmp_path):
    assert check(tmp_path, CLEAN | {'laboratory/x.cc': ''}) == (
        1, 'forbidden folder edge: ALLOWED has no line for laboratory\n')


def test_too_many_loose_files_are_found_outside_tests_only(tmp_path):
    thirty = {f'analysis/rules/r{i}.cc': '' for i in range(30)} | {f'tests/analysis/t{i}.cc': '' for i in range(40)}
    assert check(tmp_path, thirty)[0] == 0
    assert check(tmp_path, {'analysis/rules/one_more.h': ''}) == (
        1, 'too many loose files: analysis/rules has 31, at most 30 are allowed\n')


def test_files_that_git_does_not_track_do_not_count(tmp_path):
    make_tree(tmp_path, CLEAN)
    (tmp_path / 'laboratory').mkdir()
    (tmp_path / 'laboratory/x.cc').write_text('')
    assert run(tmp_path, '--check')[0] == 0


def test_a_header_is_found_where_cmake_would_find_it(tmp_path):
    measured = structure.measure({
        'collectors/cupti/decode.h': '', 'collectors/nvtx/options.h': '', 'plugins/cli/options.h': '',
        'tests/collectors/cupti/decode_test.cc': '#include "decode.h"\n',  # the only one of that name
        'tests/plugins/cli/options_test.cc': '#include "options.h"\n',  # the one in the mirrored folder
        'tests/e2e/x_test.cc': '#include "options.h"\n#include "xplane.pb.h"\n#include "tests/e2e/x.h"\n'})
    assert measured['folder edges'] == ['tests/collectors/cupti -> collectors/cupti',
                                        'tests/plugins/cli -> plugins/cli']
    assert [line.split(': ')[1] for line in measured['includes not found in the tree']] == [
        'options.h', 'xplane.pb.h', 'tests/e2e/x.h']


def test_functions_are_found_in_namespaces_and_classes():
    assert lengths_of('''
namespace a::b {
namespace {
struct [[nodiscard]] Pair final : Base<void(int)> {
  int x{1}, y = 2;
  std::function<void(int)> call{[](int) { return 1; }};
 public:
  bool operator()(int a, int b) const {
    return a < b;
  }
  Pair& operator=(const Pair&) = default;
  bool operator==(const Pair& o) const { return x == o.x; }
};
enum class Kind : int { kA, kB };
constexpr Rule kRule{.id = "x", .check = &Check};
const std::vector<int> kList = {
  1,
  F(2),
};
}  // namespace
template <typename T, int N = (3 > 2)>
std::vector<std::pair<int, T>> Make(T value, std::vector<int> list = {},
                                    int n = N) noexcept(true) {
  return {};
}
auto Arrow(int x) -> decltype(x) { return x; }
extern "C" {
int Plain() {
  return 1;
}
}
}
''') == [('operator_', 3), ('operator_', 1), ('Make', 5), ('Arrow', 1), ('Plain', 3)]


def test_initialiser_lists_are_no_bodies():
    assert lengths_of('''
Reader::Reader(std::string path, int n)
    : path_{std::move(path)},
      count_(n), done_{[this] { return n; }},
      Base<int>{3} {
  Open();
}
Other::Other() : a_{1} {}
Third::Third() : a_(1) {
}
Third::~Third() {
}
''') == [('Reader::Reader', 6), ('Other::Other', 1), ('Third::Third', 2), ('Third::~Third', 2)]


def test_lambdas_and_local_classes_belong_to_their_function():
    assert lengths_of('''
void Outer() {
  struct Local {
    int Get() { return 1; }
  };
  auto f = [&](int x) {
    for (int i = 0; i < x; ++i) { Use(i); }
  };
}
const auto kNamed = [](int x) {
  return x;
};
int after = Call([] { return 1; });
TEST_F(Suite, CaseOfIt) {
  Check({1, 2});
}
''') == [('Outer', 8), ('kNamed', 3), ('Suite.CaseOfIt', 3)]


def test_braces_in_literals_comments_and_directives_are_no_braces():
    assert lengths_of('''
#define OPEN(x) { \\
  if (x) {
std::string Text() {
  const char quote = '"', brace = '{', escaped = '\\'';  // {{{
  int big = 1'000; char close = '}';  /* }
  }}} */
  return R"json({"a": [{ ) " // no comment
}}}
)json" "\\"{" u8"}}";
}
int Next() { return 1; }
''') == [('Text', 8), ('Next', 1)]


def test_long_functions_are_counted_past_sixty_lines(tmp_path):
    def body(lines):
        return 'void F() {\n' + '  G();\n' * (lines - 2) + '}\n'
    measured = structure.measure({'analysis/a.cc': body(60) + body(61), 'tests/b.cc': body(3) * 2})
    assert measured['main figures']['product functions over 60 lines, %'] == 50.0
    assert measured['main figures']['all functions over 60 lines, %'] == 25.0
    assert measured['longest functions'][0] == '61 lines: F (analysis/a.cc:61)'


def test_comment_shares_and_lines_of_code(tmp_path):
    measured = structure.measure({
        'analysis/a.h': '// Copyright 2026 someone.\n// SPDX: x\n\n'
                        '// Why.\n/* and\n\nso */\nint a;  // counts as code\n',
        'analysis/a.cc': '// About.\n\nconst char* url = "http://x";\n'
                         'const char* text = R"(\n// no comment\n)";\nint b;\n',
        'samples/s.py': '#!/usr/bin/env python3\n"""What\nit is."""\n\nx = """two\nlines"""  # code\n# why\n'})
    assert measured['comments in headers, %']['all'] == 75.0  # three of four lines
    assert measured['comments in sources, %']['analysis'] == round(100 / 6, 1)
    assert measured['lines of code']['C++ analysis'] == 1 + 5
    assert measured['lines of code']['C++ product'] == 6
    assert measured['lines of code']['Python product'] == 2


def test_calls_that_end_the_process_are_listed_in_product_code_only():
    code = ('static_assert(sizeof(int) == 4);\nvoid F() {\n  timer.exit(); // abort()\n  Log("exit(1)");\n'
            '  std::abort();\n  ABSL_CHECK_EQ(1, 2);\n  assert(true);\n}\n')
    measured = structure.measure({'analysis/a.cc': code, 'tests/a.cc': code})
    assert measured['calls that end the process, product'] == [
        'analysis/a.cc:5: std::abort', 'analysis/a.cc:6: ABSL_CHECK_EQ', 'analysis/a.cc:7: assert']


def test_compare_shows_another_revision_beside_the_tree(tmp_path):
    make_tree(tmp_path, CLEAN)
    subprocess.run(['git', '-C', tmp_path, '-c', 'user.name=x', '-c', 'user.email=x@example.com', 'commit', '-qm', 'x'],
                   check=True)
    (tmp_path / 'analysis/rules/sync.cc').write_text('int a;\nint b;\nint c;\n')
    subprocess.run(['git', '-C', tmp_path, 'add', '-A'], check=True)
    status, text = run(tmp_path, '--compare', 'HEAD')
    rows = {line[:46].strip(): line[46:].split() for line in text.splitlines()}
    assert status == 0
    assert rows[''] == ['HEAD', 'now', 'change']
    assert rows['C++ analysis'] == ['4', '6', '+2']
    assert rows['C++ tests'] == ['2', '2', '+0']


def test_the_text_lists_what_the_json_has(tmp_path):
    tree = make_tree(tmp_path, CLEAN)
    text = run(tree)[1]
    measured = json.loads(run(tree, '--json')[1])
    assert measured['folder edges'] == ['analysis/rules -> analysis/steps', 'analysis/steps -> profiler/trace',
                                        'tests/analysis -> analysis/steps']
    assert all(title in text for title in measured)
    assert all(f'  {edge}\n' in text for edge in measured['folder edges'])
