"""The tables of words behind `text.clean`.

A saved model relies on them: it was trained on texts that they cleaned. `tests/text/test_clean.py`
holds their digest, so that no word changes unnoticed.
"""

from __future__ import annotations

# What stands before "n't" -> what the whole becomes. "cannot" is one word in English, and in every
# table of word vectors. "ain't" stands for five things; this is the most frequent.
NEGATED = {
    "ai": "is not", "are": "are not", "ca": "cannot", "could": "could not", "dare": "dare not",
    "did": "did not", "do": "do not", "does": "does not", "had": "had not", "has": "has not",
    "have": "have not", "is": "is not", "am": "am not", "may": "may not", "might": "might not",
    "must": "must not", "need": "need not", "ought": "ought not", "sha": "shall not",
    "should": "should not", "used": "used not", "use": "use not", "was": "was not",
    "were": "were not", "wo": "will not", "would": "would not",
}  # fmt: skip

# The same where people leave the apostrophe out. "cant", "wont" and "usent" are not among them:
# these are words or names of their own.
_BARE = """
    aint arent couldnt didnt doesnt dont hadnt hasnt havent isnt mightnt mustnt neednt shouldnt
    wasnt werent wouldnt
"""
NEGATED_BARE = tuple(_BARE.split())

# Dropped by the step "stop-words" unless negations are kept; with every contraction in NEGATED.
_NEGATIONS = "cannot neither never no nobody none nor not nothing nowhere without"
NEGATIONS = frozenset(_NEGATIONS.split())

# Words that hold sentences together and say little by themselves: articles, pronouns,
# prepositions, conjunctions, auxiliaries, and the contractions of these.
_STOP_WORDS = """
    a an the this that these those such
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    one's who whom whose which what whoever whatever whichever
    someone somebody something anyone anybody anything everyone everybody everything
    some any each every either both all few many much more most other others another
    own same several
    am is are was were be been being do does did doing done have has had having
    can could will would shall should may might must ought
    about above across after against along among around as at before behind below beneath beside
    besides between beyond by despite down during except for from in inside into near of off
    on onto out outside over past per since through throughout till to toward towards under until
    up upon via with within
    and but or so yet if because although though while whereas unless whether than then once
    also again already always ever even just only quite rather really still too very perhaps
    here there where when why how now today
    i'm i've i'd i'll you're you've you'd you'll he's he'd he'll she's she'd she'll
    it's it'd it'll we're we've we'd we'll they're they've they'd they'll
    that's that'd that'll this'll these're those're there's there'd there'll there're here's
    who's who'd who'll who're who've what's what'd what'll what're what've which's
    where's where'd when's why's how's how'd let's
    someone's somebody's something's everyone's everybody's everything's anyone's anybody's
    could've should've would've might've must've y'all
    im ive youre youve hes shes theyre theyve thats whats theres
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
