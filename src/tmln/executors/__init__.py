"""Many runs: what is to be done, what it will take, who does it, and how that looks to a person."""
