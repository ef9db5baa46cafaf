"""What QueryFlux keeps about itself: configuration, leases, records. The only room that speaks SQL about
us."""
