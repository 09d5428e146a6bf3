"""What people read: the HTML report, manifests, prologs."""
