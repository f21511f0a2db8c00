package modes

// Scenario is what a run does with a mode. Runs are named after it.
type Scenario string

// The scenarios; those of drills are named by [Drill].
const (
	Rounds Scenario = "rounds" // the herd is released together, round by round
	Load   Scenario = "load"   // the same, with a larger herd
	Live   Scenario = "live"   // traffic: workers ask on their own
	// Gallery is open traffic that is the same for each mode: by one schedule, from a cold key.
	Gallery Scenario = "gallery"
)

// Drill is the scenario of the drill of that name.
func Drill(name string) Scenario { return Scenario("drill-" + name) }
