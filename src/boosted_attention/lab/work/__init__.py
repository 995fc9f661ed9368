"""What trials compute. Every file of the folder is imported with the package, and registers its works by name."""

from boosted_attention.registration import import_folder

import_folder(__name__)
