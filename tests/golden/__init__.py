"""Golden curves: the losses and accuracies of three short runs, kept, so that numbers never change unnoticed."""
