"""The text of sasl.jaas.config."""

from __future__ import annotations

import pytest

from kraftlog.security.jaas import PLAIN_MODULE, JaasError, parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("m required;", {}),
        ("m REQUIRED a=b;", {"a": "b"}),
        ("m optional a = b c='d e' ;", {"a": "b", "c": "d e"}),
        ('m required user_alice="s;e=c" \n user_bob=\'"\';', {"user_alice": "s;e=c", "user_bob": '"'}),
        (r'm required a="\"\\\n\t\101\z";', {"a": '"\\\n\tAz'}),
        ('m required // a comment; with marks="\n a="http://x/*y*/";', {"a": "http://x/*y*/"}),
        ("m /* b\n c */ required a=b;\n", {"a": "b"}),
        ('m required a="";', {"a": ""}),
        ('m required a="ä";', {"a": "ä"}),
    ],
)
def test_a_login_module_and_its_options(text, options):
    entry = parse_jaas(text)
    assert (entry.module, entry.options) == ("m", options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no login module"),
        (" // only a comment", "no login module"),
        ("m required a=b", "semicolon"),
        ("m required; m required;", "more than one"),
        ("m;", "begins with"),
        ("m sometimes a=b;", "begins with"),
        ("required;", "begins with"),
        ("= required;", "begins with"),
        ("m required a;", "option a is not followed"),
        ("m required a=;", "option a is not followed"),
        ("m required a==b;", "option a is not followed"),
        ("m required =b;", "equals sign"),
        ("m required a=b=c;", "equals sign"),
        ("m required a=b c;", "option c"),
        ("m required a=b a=c;", "twice"),
        ("m required a=b/c;", "slash"),
        ('m required a="b;', "not closed"),
        ('m required a="b\nc";', "not closed"),
        ('m required a="b\\";', "not closed"),
        ("m required /* a=b;", "slash"),
    ],
)
def test_other_text_is_refused_with_the_reason(text, reason):
    with pytest.raises(JaasError, match=reason):
        parse_jaas(text)


def test_no_text_shows_a_value():
    text = f'{PLAIN_MODULE} required password="hunter2" password="hunter2";'
    with pytest.raises(JaasError) as refusal:
        parse_jaas(text)
    assert "hunter2" not in str(refusal.value)
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN_MODULE} required password="hunter2";'))
