"""Made inputs for `topocheck demo`: a healthy job and broken ones, the same bytes each time."""
