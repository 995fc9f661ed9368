"""The command ``boosted-attention``: one file per subcommand, heavy imports inside."""
