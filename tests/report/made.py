"""What the report's tests look at: a small reproduction on a text that would like to be HTML."""

HOSTILE = "<img src=x onerror=alert(1)></script><!-- & \"quotes\" 'n' $x_1$ {{ 7 }} {% raw %}\n"
EXPERIMENTS = ("propositions", "rounds", "budget", "capacity", "temperature", "lm-main", "lm-convergence", "analysis")
