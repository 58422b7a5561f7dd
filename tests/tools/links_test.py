"""Checks that relative links in the repository's pages lead to existing files, and their anchors to headings."""
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r'\]\((?!\w+:)([^)\s]+)\)')


def anchors(page):
    """Returns the anchors that a forge generates for a page's headings."""
    titles = re.findall(r'^#+ +(.*)$', page.read_text(encoding='utf-8'), re.M)
    return {re.sub(r'[^\w\- ]', '', re.sub(r'\[(.*?)\]\(.*?\)', r'\1', title).lower()).replace(' ', '-') for title in titles}


def broken(root, page):
    text = re.sub(r'```.*?```', '', page.read_text(encoding='utf-8'), flags=re.S)
    for link in LINK.findall(text):
        path, _, anchor = link.partition('#')
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f'{page.relative_to(root)}: {link}'
        elif anchor and target.suffix == '.md' and anchor not in anchors(target):
            yield f'{page.relative_to(root)}: no heading {link}'


def test_links_of_all_pages():
    pages = subprocess.run(['git', 'ls-files', '*.md'], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    assert pages
    assert [line for page in pages for line in broken(ROOT, ROOT / page)] == []


def test_broken_links_are_found(tmp_path):
    (tmp_path / 'a.md').write_text('# One two\n[x](b.md) [y](#one-two) [z](#three) [w](https://example.org/none)\n')
    assert list(broken(tmp_path, tmp_path / 'a.md')) == ['a.md: b.md', 'a.md: no heading #three']
