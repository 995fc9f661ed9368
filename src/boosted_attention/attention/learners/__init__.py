"""The base learners, one per file.

To add one, write its file into this folder, its formula into ``attention/reference.py`` and its row into the README:

1. Subclass ``SoftmaxLearner`` and override ``attend``, or, for a round without attention, ``Learner`` and its
   ``forward``; attributes of ``Learner`` say what it asks of a layer. Options of its own are keyword-only arguments of
   ``__init__``, documented in the class's ``Args:``. Weights of its own that are random and no linear layer's are named
   in ``random_start``; linear maps that start at zero are ``ZeroLinear``. A formula that contains the attention weights
   states ``needs_maps = True`` and takes them from ``call.weights``. Decorate it with ``@register_learner("name")``.
2. Subclass the layer, ``class NameAttention(AttentionLayer, learner="name")``: signature and help follow, and the
   package offers every class whose name ends so.
3. Call ``register_layer("name", Layer)``, once per name the catalog is to have, with options as keywords.

Every file of the folder is imported, in alphabetical order, when the package is. A learner outside of it does the same
in any module that the program imports, as ``examples/own_learner.py`` shows.
"""

from boosted_attention.registration import import_folder

import_folder(__name__)
