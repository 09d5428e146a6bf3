"""Where evidence comes from: live machines and text that other tools wrote."""
