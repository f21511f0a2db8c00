package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// prefix is what the lab's variables begin with.
const prefix = "CACHELAB_"

// variableOf is the environment variable of a flag.
func variableOf(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// otherVariables are the lab's variables that are no flag's: of the tests, of the folder in
// which those find Jaeger and Prometheus, and cobra's.
var otherVariables = []string{
	"CACHELAB_REQUIRE_REDIS", "CACHELAB_TEST_HOLDER", "CACHELAB_SERVERS",
	"CACHELAB_ACTIVE_HELP", "CACHELAB_COMPLETION_DESCRIPTIONS",
}

// unknownVariables are sentences about the variables of the environment that look like the lab's and are not. They change
// nothing, which a mistyped one would do in silence. A warning and no error: an environment may be shared with another
// version of the lab.
func unknownVariables(root *cobra.Command, environ []string) (all []string) {
	known := slices.Clone(otherVariables)
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, variableOf(f.Name)) })
		for _, sub := range c.Commands() {
			visit(sub)
		}
	}
	visit(root)
	for _, one := range environ {
		name, _, _ := strings.Cut(one, "=")
		if !strings.HasPrefix(name, prefix) || slices.Contains(known, name) {
			continue
		}
		nearest := slices.MinFunc(known, func(a, b string) int { return distance(name, a) - distance(name, b) })
		text := name + " is set, but no command has such a variable"
		if distance(name, nearest) <= 3 {
			text += fmt.Sprintf(": do you mean %s?", nearest)
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// distance is how many letters must be changed, added or removed to make b of a (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j+1]+1, row[j]+1)
		}
	}
	return row[len(b)]
}
