"""What is kept on disk: documents read under bounds, seals on them, folders written whole, and locks between commands.

documents.py   JSON files: bounded, parsed, and refused in one line
sealing.py     documents that carry their own sha256, and list the files they stand for
writing.py     files and folders that appear whole or not at all
locks.py       who may write to a folder, and who reads from it meanwhile
"""
