"""The lab: experiments, the trials that carry them out, and the judging of the paper's claims."""
