"""What a run trains, and the arithmetic of one learner."""
