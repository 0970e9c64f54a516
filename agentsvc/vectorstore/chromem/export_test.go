package chromem

// Searches are the turns of searches.
var Searches = searches
