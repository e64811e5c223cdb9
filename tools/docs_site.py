"""MkDocs hooks: what makes pages that are written for a source tree fit for the site."""
import pathlib
import re

# The order of the navigation; other pages and folders follow in the order of their names.
ORDER = ["index.md", "tutorial", "tutorial/first-run.md", "how-to", "reference", "reference/words.md",
         "explanation", "architecture.md", "development.md", "results"]
PAGES_AND_PICTURES = {".md", ".svg", ".png"}


def on_page_markdown(markdown, page, config, **_):
    """Turns the tags of code blocks (```sh run) into what MkDocs knows, and unlinks files outside the site."""
    here = pathlib.Path(page.file.abs_src_path).parent
    docs = pathlib.Path(config.docs_dir).resolve()

    def link(match):
        target = match[2].partition("#")[0]
        path = (here / target).resolve()
        inside = path.is_relative_to(docs) and path.suffix in PAGES_AND_PICTURES
        return match[0] if not target or ":" in target or inside else match[1]

    markdown = re.sub(r"^( *```\w+) file=(\S+)$", r'\1 title="\2"', markdown, flags=re.M)
    markdown = re.sub(r"^( *```\w+) (?!title=).*$", r"\1", markdown, flags=re.M)
    return re.sub(r"(?<!!)\[([^\]\n]+)\]\(([^)\s]+)\)", link, markdown)


def on_nav(nav, **_):
    """Sorts the navigation."""
    def key(item):
        path = item.file.src_uri if item.is_page else item.children[0].file.src_uri.rpartition("/")[0]
        return ORDER.index(path) if path in ORDER else len(ORDER), path

    for items in [nav.items, *(item.children for item in nav.items if item.is_section)]:
        items.sort(key=key)
    return nav
