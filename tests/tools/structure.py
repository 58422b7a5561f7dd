#!/usr/bin/env python3
"""Measure the structure of the C++ tree, and check that no folder includes what it must not.

    python3 tests/tools/structure.py [--json]         the measurements, as text or JSON
    python3 tests/tools/structure.py --check          one line per violation; exit status 1 if there are any
    python3 tests/tools/structure.py --compare REV    the main figures of REV beside those of the working tree

Reads the tracked .cc, .h and .py files (git ls-files). A folder and its include/stepscope count as one
folder; x.h and x.cc of one folder count as one unit, written x.h below. Needs nothing but Python and git.
"""
import argparse
import ast
import collections
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile

# Which folder may include which others, from the bottom of the tree to its top.
#   left:  `a/b` stands for a/b and all folders below it, `a/*` only for those below, `a/.` only for a itself, and
#          `a/b/x.h` for x.h and x.cc alone. If several lines match an including file, the longest one counts.
#   right: the same forms; `<a/b>` allows the public headers of a/b (its include/stepscope) and nothing else of it.
# A folder may always include itself. Folders below it, or beside it under the same line, have to be listed.
EVENTS = ['profiler/trace']
ANALYSIS = ['ops', 'words', 'edit', 'steps', 'timeline', 'device', 'replay', 'context', 'evidence', 'ranks', 'rules',
            'drawing', 'engine', 'tables']  # each may include only those before it, and analysis/. with the public structs
LIBRARY = ['profiler', 'collectors', 'analysis', 'exporters']
ALLOWED = {
    'profiler/trace': [],
    'profiler/session': EVENTS,
    'profiler/profile': EVENTS + ['profiler/session', 'collectors', 'exporters', 'analysis'],
    # An event source implements its line of the public collectors.h. It includes neither other sources nor their list.
    'collectors/*': EVENTS + ['profiler/session', '<collectors>'],
    'collectors/cupti': EVENTS + ['profiler/session', '<collectors>', 'collectors/cupti/api', 'collectors/cupti/nvml',
                         'collectors/cupti/counters'],
    'collectors/cupti/api': [],
    'collectors/cupti/counters': EVENTS + ['profiler/session', 'collectors/cupti/api'],
    'collectors/cupti/nvml': EVENTS + ['profiler/session', 'collectors/cupti/api'],
    'collectors/.': EVENTS + ['profiler/session', 'collectors/*'],
    'analysis/.': EVENTS + ['analysis'],
    **{f'analysis/{folder}': EVENTS + ['analysis/.'] + [f'analysis/{lower}' for lower in ANALYSIS[:place + 1]]
       for place, folder in enumerate(ANALYSIS)},
    'analysis/report': EVENTS + ['analysis/.', 'analysis/words', 'analysis/ranks', 'analysis/tables', 'analysis/report',
                                 '<analysis/engine>', '<analysis/rules>'],
    'exporters/.': EVENTS,  # the public headers
    'exporters/io': EVENTS,
    'exporters/json': EVENTS + ['exporters/io'],
    'exporters/rows': EVENTS + ['exporters/json'],
    **{f'exporters/{folder}': EVENTS + ['exporters/io', 'exporters/json', 'exporters/rows']
       for folder in ('chrome/reader', 'chrome/writer', 'text', 'xspace/reader', 'xspace/writer')},
    'exporters/files': EVENTS + ['exporters/.', 'exporters/*'],
    'plugins': LIBRARY + ['plugins', 'samples', 'tests'],
    'samples': LIBRARY + ['plugins', 'samples', 'tests'],
    'tests': LIBRARY + ['plugins', 'samples', 'tests'],
}
PRODUCT = LIBRARY + ['plugins', 'samples']
MOST_LOOSE_FILES = 30
KINDS = ('.cc', '.h', '.py')
LONG_FUNCTION = 60  # lines; a longer function does not fit a screen

TOKEN = re.compile(r"""(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))
    |(?:u8|[uUL])?R"(?P<delimiter>[^()\\\s]{0,16})\(.*?\)(?P=delimiter)"
    |"(?:\\.|[^"\\\n])*" | '(?:\\.|[^'\\\n])+'
    |\d(?:'?[\w.])*                              # so that 1'000 opens no character
    |[A-Za-z_]\w*""", re.S | re.X)
INCLUDE = re.compile(r'\s*#\s*include\s*(?:"([^"]+)"|<(stepscope/[^>]+)>)')
STOPS = re.compile(r'(?<![.>])\b(?:std::)?(?:abort|exit|_exit|_Exit|quick_exit|terminate|assert|__builtin_trap'
                   r'|(?:ABSL_|TORCH_|C10_)?(?:RAW_|INTERNAL_)?[DPQ]?(?:CHECK|ASSERT)(?:_[A-Z]+)*)\s*\(')


def top(path):
    return path.split('/')[0]


def masked(text):
    """Returns `text` with the same length and lines; comments become blanks, and the insides of literals become underscores."""
    def cover(match):
        if match['comment']:
            return re.sub(r'[^\n]', ' ', match[0])
        return '"' + re.sub(r'[^\n]', '_', match[0][1:-1]) + '"' if match[0][-1] in '"\'' else match[0]
    return TOKEN.sub(cover, text)


class Source:
    """A C++ file: its lines by kind, and its includes."""

    def __init__(self, path, text):
        self.path = path
        self.folder = re.sub(r'(^|/)include/stepscope(/.*)?$', '', os.path.dirname(path))
        self.unit = f'{self.folder}/{os.path.splitext(os.path.basename(path))[0]}.h'
        self.is_public = '/include/stepscope/' in path
        self.code = masked(text)
        lines = list(zip(text.split('\n'), self.code.split('\n')))
        comments = [bool(raw.strip()) and not code.strip() for raw, code in lines]
        licence = [*comments, False].index(False)  # number of lines of the comment at the start of the file
        licensed = re.search(r'copyright|SPDX|licensed under', '\n'.join(raw for raw, _ in lines[:licence]), re.I)
        self.length = len(text.splitlines())
        self.code_lines = sum(1 for _, code in lines if code.strip())
        self.comment_lines = sum(comments[licence if licensed else 0:])
        found = [INCLUDE.match(raw) for raw, code in lines if code.lstrip().startswith('#')]
        self.includes = [match.group(1) or match.group(2) for match in found if match]


def functions(source):
    """Returns (lines, name, path, first line) of each function body, counted from its declaration's first line to its brace.

    A lambda or a local class belongs to the function around it. Found by braces, not by a parser."""
    code = re.sub(r'^[ \t]*#(?:\\\n|[^\n])*', lambda m: re.sub(r'[^\n]', ' ', m.group()), source.code, flags=re.M)
    found, head = [], 0  # head: start of the current declaration
    open_braces = [['scope', '', 0, 0]]  # kind and name of what it opens, start of the declaration, open parentheses
    for match in re.finditer(r'[{}();]', code):
        at, mark = match.start(), match.group()
        kind, name, begin, parens = open_braces[-1]
        if mark in '()':
            open_braces[-1][3] += 1 if mark == '(' else -1
        elif mark == '{':
            opens = brace_kind(code[head:at]) if kind == 'scope' and not parens else ('value', '')
            open_braces.append([*opens, head, 0])
        elif mark == '}' and len(open_braces) > 1:
            open_braces.pop()
            if kind == 'function':
                begin += len(re.match(r'(?:\s|\b(?:public|private|protected)\s*:)*', code[begin:at]).group())
                first = code.count('\n', 0, begin) + 1
                found.append((code.count('\n', 0, at) + 2 - first, name, source.path, first))
        # After {1} in `int x{1};` the declaration continues; after any other mark of a scope a new one starts.
        around = open_braces[-1]
        if mark in '{};' and around[0] == 'scope' and not around[3] and (mark, kind) != ('}', 'value'):
            head = at + 1
    return found


def brace_kind(declaration):
    """Returns what the brace after `declaration` opens: (function, scope or value; the function's name). Groups are folded from
    the inside out until only the outline is left: (...) becomes (, {...} becomes {, and <...> vanishes."""
    text = re.sub(r'\boperator\s*(\(\s*\)|\[\s*\]|"_*"\s*\w+|[^\s\w("]+)', 'operator_ ', declaration)
    text = re.sub(r'\[\[.*?\]\]|\b(?:public|private|protected)\s*:(?!:)|->', ' ', text, flags=re.S)
    before = None
    while before != text:
        before = text
        text = re.sub(r'\([^(){}]*\)', '\1', text)
        text = re.sub(r'\{[^(){}]*\}', '\2', text)
        text = re.sub(r'<[^<>(){};]*>', ' ', text)
    text = text.replace('\1', '(').replace('\2', '{').strip()
    text = re.sub(r'\b(?:alignas|decltype|__attribute__|explicit|requires|template)\b\s*\(?', ' ', text)
    if re.search(r'\bnamespace\b[^(=]*$|\bextern\s*"_*"$|\b(?:class|struct|union)\b[^(=]*$', text):
        return 'scope', ''
    if '=' in text:
        named = re.search(r'(\w+)\s*=\s*\[[^]]*\]\s*\(?[^(]*$', text)
        return ('function', named.group(1)) if named else ('value', '')
    if '(' not in text or re.search(r'\([^(]*?(?<!:):(?!:).*\w$', text, re.S):  # the second pattern is a constructor's x_{1}
        return 'value', ''
    test = re.search(r'\bTEST\w*\(\s*(\w+)\s*,\s*(\w+)\s*\)\s*$', declaration)
    name = re.search(r'([~\w:]+)\s*\(', text)
    return 'function', '.'.join(test.groups()) if test else name.group(1) if name else '?'


class Graph:
    """The includes among folders and among units."""

    def __init__(self, sources):
        self.paths = {s.path: s for s in sources}
        self.public = {s.path.split('/include/', 1)[1]: s for s in sources if s.is_public}
        self.includes, self.not_found, self.folder_edges = [], [], {}
        for source in sources:
            for name in source.includes:
                target = self.resolve(source, name)
                if target is None:
                    self.not_found.append(f'{source.path}: {name}')
                elif target.unit != source.unit:
                    self.includes.append((source, target))
                    if source.folder != target.folder:
                        self.folder_edges.setdefault((source.folder, target.folder), f'{source.path} includes {name}')

    def resolve(self, source, name):
        """Returns the file that `name` means: a public header, or the file found from the source's folder upwards. Because
        CMake's include paths may lead anywhere, also the only file of that name, or the one in the folder that a test
        mirrors."""
        if name in self.public:
            return self.public[name]
        folder = pathlib.PurePosixPath(source.path).parent
        for base in [folder, *folder.parents, 'tests', 'samples']:
            near = os.path.normpath(f'{base}/{name}')
            if near in self.paths:
                return self.paths[near]
        matches = [s for path, s in self.paths.items() if path.endswith('/' + name)]
        mirrored = [s for s in matches if 'tests/' + s.folder == source.folder]
        return (matches if len(matches) == 1 else mirrored or [None])[0]

    def loops(self):
        """Returns sets of units that all reach each other, with the includes among them."""
        after, reach = {}, {}
        for source, target in self.includes:
            after.setdefault(source.unit, set()).add(target.unit)
        for unit in after:
            reach[unit], todo = set(), [unit]
            while todo:
                new = after.get(todo.pop(), set()) - reach[unit]
                reach[unit] |= new
                todo += new
        loops = {tuple(sorted(v for v in reach[u] if u in reach.get(v, ()))) for u in reach if u in reach[u]}
        return [f'{", ".join(loop)} (' + '; '.join(sorted({
            f'{os.path.basename(s.path)} includes {os.path.basename(t.path)}'
            for s, t in self.includes if s.unit in loop and t.unit in loop})) + ')' for loop in sorted(loops)]

    def forbidden(self):
        """Yields one line per edge that ALLOWED lacks, and per folder that it does not contain."""
        def fits(pattern, source):
            if pattern.startswith('<'):
                return source.is_public and fits(pattern[1:-1], source)
            if pattern.endswith('/*'):
                return source.folder.startswith(pattern[:-1])
            return pattern in (f'{source.folder}/.', source.unit) or f'{source.folder}/'.startswith(f'{pattern}/')
        rows = {s.unit: max((row for row in ALLOWED if fits(row, s)), key=len, default=None)
                for s in self.paths.values()}
        found = {}
        for source, target in self.includes:
            allowed = ALLOWED.get(rows[source.unit])
            if allowed is not None and source.folder != target.folder and not any(fits(a, target) for a in allowed):
                found.setdefault((source.folder, target.folder), []).append(f'{source.path} includes {target.path}')
        unknown = {s.folder for s in self.paths.values() if rows[s.unit] is None}
        return [f'ALLOWED has no line for {folder}' for folder in sorted(unknown)] + [
            f'{a} must not include {b} ({where[0]}; {len(where)} in all)' for (a, b), where in sorted(found.items())]


def python_code_lines(text):
    """Returns the lines with code: no blank lines, comments or docstrings."""
    lines = {n for n, line in enumerate(text.split('\n'), 1) if line.strip() and not line.strip().startswith('#')}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def percent(part, whole):
    return round(100 * part / whole, 1) if whole else 0.0


def comment_share(sources):
    return percent(sum(s.comment_lines for s in sources), sum(s.comment_lines + s.code_lines for s in sources))


def lengths(values):
    values = sorted(values) or [0]
    return {'median': values[len(values) // 2], 'p90': values[len(values) * 9 // 10], 'longest': values[-1]}


def measure(files):
    """Returns all measurements of a tree given as {path: text}."""
    cpp = [Source(path, text) for path, text in sorted(files.items()) if path.endswith(('.cc', '.h'))]
    groups = {'all': cpp, 'product': [s for s in cpp if top(s.path) in PRODUCT]}
    for source in cpp:
        groups.setdefault(top(source.path), []).append(source)
    headers, sources = ({name: comment_share([s for s in group if s.path.endswith(end)])
                         for name, group in groups.items()} for end in ('.h', '.cc'))
    python = [(top(path), python_code_lines(text)) for path, text in files.items() if path.endswith('.py')]
    counts = collections.Counter(os.path.dirname(s.path) for s in cpp).most_common()
    bodies = sorted((f for s in cpp for f in functions(s)), key=lambda f: (-f[0], f[2]))
    too_long = [(f[0] > LONG_FUNCTION, top(f[2]) in PRODUCT) for f in bodies]
    long_in = {'product': [long for long, in_product in too_long if in_product], 'all': [long for long, _ in too_long]}
    graph = Graph(cpp)
    edges = graph.folder_edges
    violations = {
        'mutual folder edge': [f'{a} <-> {b} ({edges[a, b]}; {edges[b, a]})'
                               for a, b in sorted(edges) if a < b and (b, a) in edges],
        'file loop': graph.loops(),
        'too many loose files': [f'{folder} has {n}, at most {MOST_LOOSE_FILES} are allowed' for folder, n in counts
                                 if n > MOST_LOOSE_FILES and top(folder) != 'tests'],
        'forbidden folder edge': graph.forbidden(),
    }
    return {
        'main figures': {
            'folder edges, outside tests': sum(top(a) != 'tests' for a, b in edges),
            'folder edges, all': len(edges),
            **{f'violations: {kind}': len(lines) for kind, lines in violations.items()},
            'loose files in the fullest product folder': max([n for f, n in counts if top(f) in PRODUCT] or [0]),
            'comments in product headers, %': headers['product'],
            'comments in product sources, %': sources['product'],
            **{f'{name} functions over {LONG_FUNCTION} lines, %': percent(sum(long), len(long))
               for name, long in long_in.items()},
        },
        'lines of code': {
            **{f'C++ {name}': sum(s.code_lines for s in group) for name, group in groups.items()},
            'Python product': sum(n for folder, n in python if folder in PRODUCT),
            'Python tests': sum(n for folder, n in python if folder == 'tests'),
        },
        'comments in headers, %': headers,
        'comments in sources, %': sources,
        'lines of a header': lengths(s.length for s in cpp if s.path.endswith('.h')),
        'lines of a source': lengths(s.length for s in cpp if s.path.endswith('.cc')),
        'lines of a function': {'functions': len(bodies), **lengths(f[0] for f in bodies)},
        'longest functions': [f'{n} lines: {name} ({path}:{line})' for n, name, path, line in bodies[:10]],
        'loose files, the ten fullest folders': dict(counts[:10]),
        'calls that end the process, product': [
            f'{s.path}:{s.code.count(chr(10), 0, m.start()) + 1}: {m.group()[:-1]}'
            for s in groups['product'] for m in STOPS.finditer(s.code)],
        'includes not found in the tree': graph.not_found,
        'folder edges': [f'{a} -> {b}' for a, b in sorted(edges)],
        'violations': violations,
    }


def read_tree(root, revision=None):
    """Returns {path: text} of the tracked files, from the working tree or from `revision`."""
    def git(*arguments):
        return subprocess.check_output(['git', '-C', root, *arguments])
    if revision:
        tar = tarfile.open(fileobj=io.BytesIO(git('archive', revision)))
        return {m.name: tar.extractfile(m).read().decode() for m in tar if m.isfile() and m.name.endswith(KINDS)}
    paths = [pathlib.Path(root, path) for path in git('ls-files', '-z').decode().split('\0') if path.endswith(KINDS)]
    return {path.relative_to(root).as_posix(): path.read_text(encoding='utf-8') for path in paths if path.is_file()}


def show(rows, indent=''):
    for name, value in rows.items():
        if isinstance(value, (dict, list)):
            print(f'{indent}{name}:' + ('' if value else ' none'))
            show(value if isinstance(value, dict) else {line: '' for line in value}, indent + '  ')
        else:
            print(f'{indent}{name:46} {value:>8}'.rstrip())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--root', default=pathlib.Path(__file__).resolve().parents[2], help='the tree to measure')
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument('--json', action='store_true', help='print JSON')
    mode.add_argument('--check', action='store_true', help='print violations, exit 1 if there are any')
    mode.add_argument('--compare', metavar='REV', help='print the main figures of REV beside the working tree')
    arguments = parser.parse_args()
    measured = measure(read_tree(arguments.root))
    if arguments.check:
        lines = [f'{kind}: {line}' for kind, lines in measured['violations'].items() for line in lines]
        print('\n'.join(lines) or 'structure: no violation')
        return 1 if lines else 0
    if arguments.json:
        print(json.dumps(measured, indent=1))
    elif arguments.compare:
        other = measure(read_tree(arguments.root, arguments.compare))
        print(f'{"":46}{arguments.compare:>12}{"now":>12}{"change":>12}')
        for title in ('main figures', 'lines of code'):
            for name in {**other[title], **measured[title]}:
                old, new = other[title].get(name, 0), measured[title].get(name, 0)
                print(f'{name:46}{old:>12,}{new:>12,}{round(new - old, 1):>+12,}')
    else:
        show(measured)
    return 0


if __name__ == '__main__':
    sys.exit(main())
