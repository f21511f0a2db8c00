// Jaeger's page: the root span of a round has the address of the dashboard at its time in the tag "dashboard". This
// makes it a link. A template in quotes would escape the address, so it is a function.
function UIConfig() {
  return {
    linkPatterns: [
      {
        type: "tags",
        key: "dashboard",
        url: { parameters: ["dashboard"], template: (tags) => tags.dashboard },
        text: "The dashboard at the time of this round",
      },
    ],
  };
}
