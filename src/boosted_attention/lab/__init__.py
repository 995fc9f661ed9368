"""The lab: experiments, the runner that executes them, statistics, and the ledger of the paper's claims."""
