"""From numbers to sentences: quantities, tables, claims, the rules that judge them, and the ledger."""
