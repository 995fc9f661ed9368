"""The paper's propositions as executable checks, each with the case in which it says nothing or fails."""
